"""Detect jobs that use more than they booked, stop them as configured, and record which jobs were affected."""
