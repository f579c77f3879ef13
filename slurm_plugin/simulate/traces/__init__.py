"""Traces of jobs: read from a file, dealt out to users, with the loads of their workloads."""
