"""Measure trainings on a host with GPUs: alone (bench/interference/activity.py) and together (interference.py).

plan (which trainings) -> campaign (one conductor a GPU) -> worker (a process that holds one training) -> training
counters (NVML, in a process of its own) next to each conductor
"""
