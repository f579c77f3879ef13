"""Training of the shipped estimators on RAD's measurements, in one command. Needs the `train` extra."""
