"""Replacements for library features that need a GPU."""
