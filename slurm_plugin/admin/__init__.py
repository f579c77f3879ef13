"""The rad command."""
