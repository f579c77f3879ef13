"""RAD for Slurm: what runs on the controller and on the nodes."""
