"""Fake MPS for simulated GPUs: jobs, folders and access lists as on a real GPU, without processes.

A limit is one that fake trainings obey. With a file FOLDER/no-mps it does not start.

    RUN/simulated-mps/GPU-.../1000/      as RUN/mps on a node with real GPUs
"""

from __future__ import annotations

from pathlib import Path

from slurm_plugin.core.clock import Clock, Deadline
from slurm_plugin.core.errors import MpsError
from slurm_plugin.mps.daemon import Daemon
from slurm_plugin.mps.servers import Mps
from slurm_plugin.mps.state import State


class SimulatedMps(Mps):
    """The MPS servers of a node with simulated GPUs."""

    def __init__(self, run_folder: Path, *, clock: Clock | None = None, starts: bool = True) -> None:
        """Prepare; nothing is started yet.

        Args:
            run_folder: paths.run.
            clock: Time, for deadlines.
            starts: Whether servers start.
        """
        super().__init__(run_folder, clock=clock)
        self._folder = run_folder / FOLDER
        self._starts = starts

    def _serving(
        self, daemon: Daemon, state: State, *, alone: bool, limit_bytes: int, deadline: Deadline
    ) -> State:
        if not self._starts:
            raise MpsError(f"{daemon.place}: this simulation has no MPS")
        try:
            daemon.pipe.mkdir(parents=True, exist_ok=True)
            (daemon.pipe / "control").touch()
        except OSError as exc:
            raise MpsError(f"{daemon.pipe}: {exc.strerror}") from exc
        return state


FOLDER = "simulated-mps"


def simulated_mps(folder: Path, run: Path, *, clock: Clock | None = None) -> SimulatedMps:
    """Return the MPS servers of a node with simulated GPUs.

    Args:
        folder: The folder of the simulated GPUs.
        run: `paths.run`.
        clock: Time, for deadlines.
    """
    return SimulatedMps(run, clock=clock, starts=not (folder / "no-mps").exists())
