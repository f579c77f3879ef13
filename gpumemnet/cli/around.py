"""What rad-estimate is told besides its options, and what its exit status can be."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from gpumemnet.cli.cluster import Cluster

PROGRAM = "rad-estimate"
FindCluster = Callable[[Path | None], Cluster | None]
"""Given the rad.toml that the user names, or None: the cluster of this machine, or None."""


class Exit(IntEnum):
    """Exit statuses; the table above says what they mean."""

    FINE = 0
    FINDINGS = 1
    USAGE = 2
    BUG = 3


class Around(NamedTuple):
    """What the command is told besides its options.

    Attributes:
        script: The words of a training script behind `--`.
        find_cluster: Finds the cluster of this machine.
    """

    script: tuple[str, ...] = ()
    find_cluster: FindCluster = lambda given: None
