"""`rad why JOB`: why a job waits, or does not share. gather collects, answer decides, slurm_reasons translates."""
