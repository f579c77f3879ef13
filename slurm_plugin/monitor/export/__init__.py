"""What rad-monitor saw, for Prometheus, `rad top` and `rad status`."""
