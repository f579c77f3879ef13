"""Readings of GPUs: NVML, GPM, DCGM or simulated ones behind one Protocol."""
