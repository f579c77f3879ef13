"""Processes: run, identify, watch and end them in time."""
