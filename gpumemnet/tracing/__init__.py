"""From a running script or a live model to a profile, without a GPU."""
