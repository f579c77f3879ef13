"""Evaluation of every estimator: on other authors' data, and on RAD's held-out models. Needs the `train` extra."""
