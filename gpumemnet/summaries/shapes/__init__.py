"""Shapes for texts that show none."""
