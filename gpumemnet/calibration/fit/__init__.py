"""From what a GPU was seen to do to rows of a site's own table of rules. Pure; `gpumemnet.calibration.measure` measures."""
