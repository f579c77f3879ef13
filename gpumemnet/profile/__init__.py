"""The compact record of a job's model and training, and its construction."""
