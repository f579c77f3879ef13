"""Every estimator's figures: on the data of others, and on our held-out models. Needs the `train` extra."""
