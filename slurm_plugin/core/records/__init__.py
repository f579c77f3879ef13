"""Frozen records that pass from one decision to the next, and their text in Slurm's comments."""
