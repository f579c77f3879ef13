"""Export rad-monitor's results to Prometheus, `rad top` and `rad status`."""
