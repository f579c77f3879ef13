"""rad.toml: its settings, its types, and reading it within a time limit."""

DEFAULT = "/etc/rad/rad.toml"
"""The file on every machine of a cluster."""
