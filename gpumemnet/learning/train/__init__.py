"""Training of the shipped estimators on our own measurements, one command. Needs the `train` extra."""
