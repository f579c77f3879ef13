"""Simulated GPUs: which jobs run on each, how these slow each other down, and what fits."""
