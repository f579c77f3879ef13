"""Bookings of jobs: the decision table, the request to Slurm and the signed result."""
