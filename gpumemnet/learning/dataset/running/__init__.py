"""Running many configurations on one GPU: processes, their queue and what is measured of each."""
