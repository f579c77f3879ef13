"""Slurm's configuration files and its installation on this host."""
