"""Measure trainings, train the estimators on them, and evaluate those."""
