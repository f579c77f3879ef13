"""Slurm's own reasons for waiting in plain words: all that need no look at GPUs.

The names are those of `squeue -O Reason` (slurm.h, job_state_reason), the same from 22.05 to 26.05. Some come with a
list of nodes, and some as a sentence with underscores.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One cause, for a person.

    Attributes:
        kind: Its name, for programs.
        text: What keeps the job waiting, or from sharing.
        fix: What its user can do.
    """

    kind: str
    text: str
    fix: str = ""


_PLAIN = {
    "Dependency": Cause(
        kind="dependency",
        text="a job that it depends on has not ended yet",
        fix="scontrol show job ID names it (Dependency=)",
    ),
    "DependencyNeverSatisfied": Cause(
        kind="never",
        text="a job that it depends on ended in another way than the dependency demands, so it never starts",
        fix="scancel it, or remove the dependency: scontrol update JobId=ID Dependency=",
    ),
    "JobHeldUser": Cause(kind="held by user", text="its user holds it", fix="scontrol release ID"),
    "job requeued in held state": Cause(
        kind="held by user", text="it was requeued and held (scontrol requeuehold)", fix="scontrol release ID"
    ),
    "JobHeldAdmin": Cause(
        kind="held by admin", text="an admin holds it", fix="your admin can release it: scontrol release ID"
    ),
    "PartitionDown": Cause(
        kind="partition down", text="its partition starts no jobs now", fix="your admin knows until when"
    ),
    "PartitionInactive": Cause(
        kind="partition down", text="its partition takes no jobs now", fix="your admin knows until when"
    ),
    "PartitionTimeLimit": Cause(
        kind="never",
        text="its --time is above its partition's limit",
        fix="scontrol update JobId=ID TimeLimit=, below MaxTime of scontrol show partition",
    ),
    "PartitionNodeLimit": Cause(
        kind="never",
        text="it requests a number of nodes that its partition does not allow, or all of its nodes are down",
        fix="request fewer nodes, or another partition",
    ),
    "Reservation": Cause(
        kind="reservation", text="its reservation has not begun yet", fix="scontrol show reservation"
    ),
    "Licenses": Cause(
        kind="licences", text="it requests licences that others use", fix="scontrol show licenses"
    ),
    "JobArrayTaskLimit": Cause(
        kind="array limit",
        text="as many tasks of its array run as it allows at once",
        fix="scontrol update JobId=ID ArrayTaskThrottle=",
    ),
    "Cleaning": Cause(kind="requeue", text="its last run still ends on its node"),
    "BadConstraints": Cause(
        kind="never", text="no node can ever meet its request", fix="compare it with scontrol show node"
    ),
    "InvalidAccount": Cause(kind="never", text="its account is not valid any more", fix="your admin"),
    "InvalidQOS": Cause(kind="never", text="its QOS is not valid any more", fix="your admin"),
}
_HELD_AFTER_FAILURE = Cause(
    kind="held after failure",
    text="it was requeued too often, or a Prolog failed, and Slurm holds it",
    fix="your admin: scontrol show job ID, the node's slurmd.log, then scontrol release ID",
)
_FAILURES = ("launch failed requeued held", "JobHoldMaxRequeue", "JobLaunchFailure")
_NO_NODE = ("ReqNodeNotAvail", "Nodes required for job are DOWN", "NodeDown", "FrontEndDown")
_LIMITS = re.compile(r"QOS|Assoc|Max\w+PerAccount")


def cause_of(reason: str) -> Cause | None:
    """Return the cause that a reason of Slurm stands for; None for one that GPUs or RAD must explain, or is unknown.

    >>> cause_of("QOSMaxGRESPerUser").kind, cause_of("ReqNodeNotAvail,_UnavailableNodes:gpu1").kind
    ('limit', 'no node')
    >>> cause_of("Resources")
    """
    words = reason.replace("_", " ").strip("()")
    code = words.partition(",")[0]
    if code in _PLAIN:
        return _PLAIN[code]
    if words.startswith(_FAILURES):
        return _HELD_AFTER_FAILURE
    if words.startswith(_NO_NODE):
        which = reason.partition("UnavailableNodes:")[2].strip("()")
        nodes = f" ({which})" if which else ""
        return Cause(
            kind="no node",
            text=f"nodes that it needs are down, drained, or reserved{nodes}",
            fix="sinfo -R says why; a maintenance reservation lets it start if its --time ends before",
        )
    if _LIMITS.match(code):
        return Cause(
            kind="limit",
            text=f"it would exceed a limit of its user, account or QOS: {code}",
            fix="wait for your other jobs, request less, or ask your admin for the limit",
        )
    return None
