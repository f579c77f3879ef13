"""Fit rows of a site's table of rules to measurements of a GPU (`gpumemnet.calibration.measure`). No I/O."""
