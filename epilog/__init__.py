"""Slurm Epilog: release the GPU, find out-of-memory crashes, recover."""
