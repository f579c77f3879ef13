"""The monitor's latest state, kept in memory for HTTP clients: Prometheus and `rad top`."""

from __future__ import annotations

import os
from threading import Lock

from slurm_plugin.monitor.export.hook_counts import HookCounts
from slurm_plugin.monitor.export.status import NodeStatus, gpu_status
from slurm_plugin.monitor.node_state import NodeState


class Board:
    """Safe to use from several threads."""

    def __init__(self, counts: HookCounts) -> None:
        """Start empty."""
        self.host = os.uname().nodename
        self._counts = counts
        self._counting = Lock()
        self._seen = NodeState()

    def show(self, seen: NodeState) -> None:
        """Take over the state after one sample."""
        self._seen = seen

    def seen(self) -> NodeState:
        """Return the state after the last sample; it is replaced whole and never written to."""
        return self._seen

    def counts(self) -> HookCounts:
        """Return the counts of the hooks' events until now."""
        with self._counting:
            self._counts.update()
        return self._counts

    def status(self) -> NodeStatus:
        """Return the state in the form shown to people."""
        seen, counts = self._seen, self.counts()
        return NodeStatus(
            host=self.host,
            time_s=max((reading.time_s for reading in seen.readings), default=0.0),
            gpus=tuple(
                gpu_status(reading, seen.ledger, seen.owners, seen.usages, idle=seen.idle, averaged=True)
                for reading in seen.readings
            ),
            happened=tuple(counts.happened),
        )
