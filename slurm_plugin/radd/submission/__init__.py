"""Answers to submissions, by rad.toml and slurm.conf as they are in force."""
