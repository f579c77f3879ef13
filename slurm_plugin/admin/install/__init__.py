"""`rad install` and `rad uninstall`: one transaction over Slurm's files and RAD's own."""
