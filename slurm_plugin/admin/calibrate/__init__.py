"""`rad calibrate`: measure a GPU's constants."""
