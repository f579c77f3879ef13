"""rad.toml: its settings, its types, and reading it within a time limit."""

from pathlib import Path

DEFAULT_PATH = Path("/etc/rad/rad.toml")
"""The file on every machine of a cluster."""
