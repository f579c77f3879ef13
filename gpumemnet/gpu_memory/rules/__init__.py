"""Behaviour of libraries and drivers on one GPU and release: a table of numbers with the command that found each."""
