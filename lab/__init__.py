"""A private Slurm with simulated GPUs, for demo and tests; never installed, run from the checkout."""
