"""Signed text that RAD keeps in a job's Comment and AdminComment."""
