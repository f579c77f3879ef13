"""Requeued jobs: when they may start, and with which priority."""
