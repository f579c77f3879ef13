"""The compact record that travels with a job, and how it is made."""
