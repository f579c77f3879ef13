"""State of rad-monitor after one sample, as passed to exporters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.monitor.window import JobUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """The state after one sample.

    Attributes:
        readings: Every GPU, ordered by index, activity averaged over the window.
        usages: Usage of each job so far, by job id.
        owners: Job id of each GPU process that belongs to a job, by pid.
        ledger: The allocations on this node.
        idle: Seconds since each job that is idle computed anything, by job id.
    """

    readings: Sequence[GpuReading] = ()
    usages: Mapping[int, JobUsage] = field(default_factory=dict)
    owners: Mapping[int, int] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    idle: Mapping[int, float] = field(default_factory=dict)
