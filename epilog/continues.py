"""Determine whether a job's run with an allocation continues, although an Epilog of the job has started."""

from __future__ import annotations

from slurm_plugin.core.clock import Deadline
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.ledger.reconcile import LAUNCH_S
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.node.evidence import STARTED
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.node.processes import living_jobs

ENDING_S = 1.0
"""slurmd runs an Epilog once no slurmstepd answers; its process may still exist for a moment."""
_POLL_S = 0.05


def goes_on(allocation: Allocation, node: Node, *, ask: bool) -> bool:
    """Return whether a run has a slurmstepd, or is about to have one according to Slurm.

    Args:
        allocation: The run's allocation.
        node: This node.
        ask: Whether there is time to wait, and to query Slurm about a run that may not have been launched yet.
    """
    deadline = Deadline(node.clock, ENDING_S if ask else 0.0)
    while allocation.job_id in living_jobs(slurm_conf=node.slurm_conf, proc=node.proc):
        if deadline.passed():
            return True
        node.clock.sleep(_POLL_S)
    if not ask or node.clock.monotonic_s() - allocation.created_s > LAUNCH_S:
        return False
    try:
        view = node.slurm().job(allocation.job_id)
    except SlurmError:
        return False
    return view is not None and view.state in STARTED and view.restarts == allocation.restart
