"""What a job books: the decision table, its request to Slurm and the signed result."""
