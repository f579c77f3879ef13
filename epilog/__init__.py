"""Slurm Epilog: release the GPU, detect out-of-memory crashes, recover."""
