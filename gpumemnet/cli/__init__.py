"""rad-estimate: the command, the choice of the estimator, the output."""

from gpumemnet.cli.entry import main

__all__ = ["main"]
