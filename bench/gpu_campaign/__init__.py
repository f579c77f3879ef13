"""Measuring on a host with GPUs: trainings alone (`bench/activity.py`) and together (`bench/interference.py`).

plan (which trainings) -> campaign (one conductor a card) -> worker (a process that holds one training) -> training
counters (NVML, in a process of its own) beside each conductor
"""
