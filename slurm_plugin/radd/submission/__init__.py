"""What is booked for a submission, by rad.toml and slurm.conf as they are in force."""
