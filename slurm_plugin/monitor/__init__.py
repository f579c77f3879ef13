"""Readings of GPUs: NVML, DCGM and simulated ones behind one Protocol."""
