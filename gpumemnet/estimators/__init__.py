"""Estimators: from a profile to bytes, selected by name."""
