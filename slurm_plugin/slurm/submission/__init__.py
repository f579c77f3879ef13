"""A submission as sbatch reads it: typed options, #SBATCH lines, and what slurmctld would do with it."""
