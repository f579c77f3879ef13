"""Checks of `rad doctor`: pure functions from facts to findings."""
