"""rad.toml: its settings, its types, and reading it within a time limit."""
