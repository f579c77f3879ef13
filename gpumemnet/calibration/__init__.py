"""`rad calibrate`: measure a GPU, and fit a site's table of rules to it."""
