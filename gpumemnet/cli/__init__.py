"""rad-estimate: the command, the choice of the estimator, the output."""

from gpumemnet.cli.rad_estimate import command, main

__all__ = ["command", "main"]
