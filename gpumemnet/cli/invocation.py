"""Inputs of rad-estimate apart from its options, and its exit statuses."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from gpumemnet.cli.cluster import ConfiguredCluster

PROGRAM = "rad-estimate"
FindCluster = Callable[[Path | None], ConfiguredCluster | None]
"""Function that maps the user's rad.toml, or None, to the cluster of this machine, or None."""


class EstimateExit(IntEnum):
    """Exit statuses of rad-estimate; rad_estimate.py has a table of their meaning."""

    FINE = 0
    FINDINGS = 1
    USAGE = 2
    BUG = 3


class Invocation(NamedTuple):
    """Inputs of the command apart from its options.

    Attributes:
        script: The words of a training script after `--`.
        find_cluster: Finds the cluster of this machine.
    """

    script: tuple[str, ...] = ()
    find_cluster: FindCluster = lambda given: None
