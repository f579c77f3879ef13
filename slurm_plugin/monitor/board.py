"""What the monitor saw last, kept in memory for whoever asks over HTTP: Prometheus and `rad top`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

from slurm_plugin.core.gpu import GpuReading
from slurm_plugin.core.ledger import Ledger
from slurm_plugin.monitor.hook_counts import HookCounts
from slurm_plugin.monitor.status import NodeStatus, gpu_status
from slurm_plugin.monitor.window import JobUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The state after one sample.

    Attributes:
        readings: Every GPU, activity averaged over the window.
        usages: What each job used so far.
        owners: Job id of each GPU process that belongs to a job.
        ledger: What jobs hold on this node.
    """

    readings: Sequence[GpuReading] = ()
    usages: Mapping[int, JobUsage] = field(default_factory=dict)
    owners: Mapping[int, int] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)


class Board:
    """Safe to use from several threads."""

    def __init__(self, counts: HookCounts) -> None:
        """Start with nothing seen.

        Args:
            counts: What hooks do.
        """
        self.host = os.uname().nodename
        self._counts = counts
        self._counting = Lock()
        self._seen = Seen()

    def show(
        self,
        readings: Sequence[GpuReading],
        usages: Mapping[int, JobUsage],
        owners: Mapping[int, int],
        ledger: Ledger,
    ) -> None:
        """Take over the state after one sample.

        Args:
            readings: One of each GPU, ordered by index.
            usages: What each job used so far, by job id.
            owners: Job id of each GPU process, where known.
            ledger: Who holds what.
        """
        self._seen = Seen(readings=readings, usages=dict(usages), owners=owners, ledger=ledger)

    def seen(self) -> Seen:
        """Return the state after the last sample; it is replaced whole and never written to."""
        return self._seen

    def counts(self) -> HookCounts:
        """Return what hooks did until now."""
        with self._counting:
            self._counts.update()
        return self._counts

    def status(self) -> NodeStatus:
        """Return the state as people look at it."""
        seen, counts = self._seen, self.counts()
        return NodeStatus(
            host=self.host,
            time_s=max((reading.time_s for reading in seen.readings), default=0.0),
            gpus=tuple(
                gpu_status(reading, seen.ledger, seen.owners, seen.usages, averaged=True)
                for reading in seen.readings
            ),
            happened=tuple(counts.happened),
        )
