"""Slurm on a node: its daemons and processes, the environment of hooks, a job's user and output files."""
