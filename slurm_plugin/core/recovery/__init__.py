"""Diagnosis of why a job ended, and its next attempt."""
