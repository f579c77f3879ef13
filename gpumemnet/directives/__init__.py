"""Parsing of user directives: `#RAD` lines and `rad:` comments."""
