"""rad-estimate: the command, which estimator answers, what is printed."""

from gpumemnet.cli.rad_estimate import command, main

__all__ = ["command", "main"]
