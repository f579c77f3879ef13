"""rad.toml: its settings, its types, and how it is read in time."""
