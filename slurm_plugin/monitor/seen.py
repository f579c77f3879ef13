"""What rad-monitor knows after one sample: the record that whoever shows it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.monitor.window import JobUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The state after one sample.

    Attributes:
        readings: Every GPU, ordered by index, activity averaged over the window.
        usages: What each job used so far, by job id.
        owners: Job id of each GPU process that belongs to a job, by pid.
        ledger: What jobs hold on this node.
    """

    readings: Sequence[GpuReading] = ()
    usages: Mapping[int, JobUsage] = field(default_factory=dict)
    owners: Mapping[int, int] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
