"""Reconcile the node's ledger in a thread separate from the sampling: Slurm may be slow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from slurm_plugin.core.errors import RadError
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.logs.once import Complaint
from slurm_plugin.core.process.background import in_background
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.node.extend_time import MoreTime
from slurm_plugin.node.facts import refresh_facts
from slurm_plugin.node.node import Node
from slurm_plugin.node.reconcile import reconcile_node, run_again
from slurm_plugin.node.unconfirmed import earlier_unconfirmed, forget_unconfirmed

log = logging.getLogger("rad-monitor")

RECONCILE_EVERY_S = 15.0
"""An allocation left unreleased is free again within a minute, and 20 s later if Slurm believes that the run exists:
then it takes two reconciliations."""

REFRESH_EVERY = 240
"""Reconciliations: the facts of the node are queried again each hour."""


class Reconciler:
    """Reconciles from time to time with the monitor's latest readings."""

    def __init__(
        self, node: Node, *, shared_s: Callable[[int], float], log_event: Callable[[EventKind, str], None]
    ) -> None:
        """Prepare; `start` begins.

        Args:
            node: This node.
            shared_s: Returns how long a job's run has shared a GPU with another user's, in seconds.
            log_event: Logs a line.
        """
        self._node = node
        self._log_event = log_event
        self._readings: Sequence[GpuReading] = ()
        self._rounds = 0
        self._trouble = Complaint(lambda wrong: log_event(EventKind.TROUBLE, wrong))
        self._more_time = MoreTime(node, shared_s=shared_s, log_event=log_event)

    def look(self, readings: Sequence[GpuReading]) -> None:
        """Take the latest readings."""
        self._readings = readings

    def start(self) -> None:
        """Reconcile in a thread that ends with the process."""
        in_background("reconciler", self._round, log=log)

    def reconcile_node(self) -> None:
        """Reconcile once, and log the findings and each new error once.

        A run that an earlier reconciliation found unconfirmed is requeued: had it ended since, Slurm would know.
        """
        trouble = ""
        try:
            unconfirmed = earlier_unconfirmed(self._node.run, now_s=self._node.clock.now_s())
            reconciled = reconcile_node(self._node, self._readings)
            if reconciled:
                self._log_event(EventKind.RECONCILED, str(reconciled))
            forget_unconfirmed(self._node.run, unconfirmed)
            for job_id, restart in unconfirmed if self._node.config.mode == "enforce" else ():
                if run_again(self._node, job_id, restart):
                    self._log_event(EventKind.RECONCILED, f"job {job_id} runs again: nothing of it is here")
        except (RadError, OSError) as exc:
            trouble = f"not reconciled: {exc}"
        try:
            if self._node.config.mode == "enforce":
                self._more_time.look()
        except (RadError, OSError) as exc:
            trouble = trouble or f"time limits not checked: {exc}"
        self._trouble.set(trouble)

    def _round(self) -> bool:
        self._node.clock.sleep(RECONCILE_EVERY_S)
        if self._readings:  # without readings the GPUs' processes are unknown
            self.reconcile_node()
            self._rounds += 1
            if self._rounds % REFRESH_EVERY == 0:
                refresh_facts(self._node, self._readings)
        return True
