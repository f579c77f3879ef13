"""Guessed contents of containers that a depth limit cut off."""
