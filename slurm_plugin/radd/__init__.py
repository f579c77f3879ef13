"""The daemon next to slurmctld: estimates, rewrites, recoveries."""
