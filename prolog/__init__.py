"""Slurm Prolog and TaskProlog: place a job on a GPU."""
