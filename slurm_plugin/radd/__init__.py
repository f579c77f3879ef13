"""The daemon beside slurmctld: estimates, rewrites, recoveries."""
