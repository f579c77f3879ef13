"""Slurm behind one Protocol; nothing else in the project calls Slurm."""
