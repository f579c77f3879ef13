"""What may differ between two records of a cell, and why; and texts without what is of the moment."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

Record = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """A difference that is no fault.

    Attributes:
        where: "env" (NAME=VALUE), "job" (a field of `scontrol show job`), "text" (a line).
        added: What may be there with RAD alone; a regular expression for the whole of it.
        reason: Why.
    """

    where: str
    added: str
    reason: str


ALLOWED_DIFFERENCES = (
    Allowed(where="env", added=r"RAD_\w+=.*", reason="what RAD sets for the job"),
    Allowed(where="env", added=r"SLURM_SHARDS_ON_NODE=.*", reason="Slurm's word for shards"),
    Allowed(where="env", added=r"APPTAINERENV_.*|SINGULARITYENV_.*", reason="a container's name of the GPU"),
    Allowed(
        where="env",
        added="CUDA_DEVICE_ORDER=PCI_BUS_ID",
        reason="CUDA's numbers are then those of Slurm's GPUs",
    ),
    Allowed(
        where="text",
        added=r"(sbatch|salloc|srun): rad: .*",
        reason="RAD's messages to the user at submission",
    ),
    Allowed(where="text", added=r"rad: .*", reason="RAD's messages to the user at submission"),
    Allowed(where="job", added=r"AdminComment", reason="the estimate, for accounts"),
    Allowed(
        where="job",
        added=r"Tres\w+|TRES|ReqTRES|AllocTRES|Gres",
        reason="a GPU may be requested as all its shards",
    ),
)

KNOWN_DIFFERENCES = (
    (
        r"CUDA_VISIBLE_DEVICES: \(unset\) -> \d+ integers"
        r"|\S+\.out: (task \d of \d: 0 GPUs(; )?)+ -> (task \d of \d: \d+ GPUs(; )?)+",
        "a step without a GPU keeps the name of its job's, as without cgroups it would reach every GPU of the node",
    ),
    (
        r"CUDA_DEVICE_ORDER: \w+ -> .*",
        "a job's numbers of GPUs hold in the order of PCI addresses alone",
    ),
    (
        r"SLURM_(CPUS_PER_GPU|MEM_PER_GPU|GPU_BIND|NTASKS_PER_TRES): \S+ -> (\(unset\))?"
        r"|SLURM_MEM_PER_NODE: \(unset\) -> \d+"
        r"|SLURM_CPUS_PER_TASK: (\(unset\)|\d+) -> \d+|(CPUs/Task|MinCPUsNode|MinMemoryNode): \w+ -> \w+"
        r"|(Cpus|Mem)PerTres: gres:gpu:\d+ -> \(none\)|\S+\.host: memory\(kbytes\) +\d+ -> memory\(kbytes\) +\d+"
        r"|SLURM_TASKS_PER_NODE: \d+ -> 1",
        "what counts by GPU is requested as its sum, where the GPU is requested as its shards",
    ),
    (
        r"\S+\.err: .* -> .*Step requested GRES \(gpu:\(null\)\) not found in the job.*",
        "a step that requests more than its job has is refused in other words",
    ),
    (
        r"SLURMD_TRES_BIND: gpu:\S+ -> (gpu:(single:1|per_task:)|\(unset\))"
        r"|(GPU_DEVICE_ORDINAL|ROCR_VISIBLE_DEVICES|ZE_AFFINITY_MASK): 1 integers -> \(unset\)"
        r"|SLURM_STEP_GPUS: \(unset\) -> 1 integers"  # with --gpu-bind=none, which is single:1 there
        r"|\S+\.err: slurmstepd-NODE: error: (Not enough gpus to bind|Bind request gpu:).* -> \(nothing\)",
        "22.05 names no GPU to several tasks with --gpu-bind and shards; TaskProlog does, for CUDA and scripts",
    ),
    (
        r"status (4 -> 143|143 -> 4) \(.*task 1: Terminate.*\)",
        "of a step that ends with its first task that fails, srun reports that task or the one that it stopped",
    ),
)
"""Differences that stay, each with its reason; none of them may make a job or step fail."""


KNOWN_OF = {
    "salloc": (
        (
            r"SLURM_(GPUS(_PER_NODE|_PER_TASK)?|NTASKS_PER_GPU): \S+ -> (\(unset\))?",
            "salloc sets these from the options, which cli_filter rewrote, before 23.11.5; SLURM_GPUS_ON_NODE stays",
        ),
    ),
    **dict.fromkeys(
        ("sbatch:cpus-per-gpu", "salloc:cpus-per-gpu"),
        (
            (
                r"SLURM_CPUS_ON_NODE: \d+ -> \d+",
                "it is requested as --cpus-per-task, which implies --exact: the step has its CPUs, not all of its job",
            ),
        ),
    ),
    "time-min": ((r"TimeLimit: \S+ -> \S+", "backfill shortens it between both limits"),),
    "two-nodes-min-max": (
        (
            r"(SLURM_(JOB_CPUS_PER_NODE|JOB_NUM_NODES|NNODES|TASKS_PER_NODE)|NumCPUs|NumNodes|NumTasks): .* -> .*"
            r"|\S+\.err: .*can't run 1 processes on 2 nodes, .* -> \(nothing\)",
            "-N 1-2 with one GPU: one GPU is one node's, and Slurm gives as many nodes as are free",
        ),
    ),
}
"""The same of one entrance, head, or form of an entrance alone."""


def is_known(difference: str, record: Record, form: str) -> bool:
    """Return whether a difference is one of those, whole.

    Args:
        difference: As it is shown.
        record: Either record of its cell.
        form: The form that shows it.
    """
    places = (record["entrance"], record["head"], f"{record['entrance']}:{form.partition('--')[0]}")
    known = (*KNOWN_DIFFERENCES, *(each for place in places for each in KNOWN_OF.get(place, ())))
    return any(re.fullmatch(text, difference, re.DOTALL) for text, _ in known)


CHANCE_ENV = re.compile(
    r"SLURM_(JOB_?ID|ARRAY_JOB_ID|STEP_?ID|STEP_ID|TASK_PID|SRUN_COMM_(PORT|HOST)|STEP_LAUNCHER_PORT|LAUNCH_NODE_IPADDR"
    r"|NODELIST|JOB_NODELIST|STEP_NODELIST|TOPOLOGY_ADDR|JOB_START_TIME|JOB_END_TIME|CPU_BIND\w*|HET_JOB_ID\w*"
    r"|PTY_PORT|WORKING_CLUSTER|HET_JOB_NODELIST\w*|JOB_NODELIST_\w+|JOB_SLUID|SLUID|PRIO_PROCESS|CPUS_ON_NODE_X)|SLURMD_NODENAME|SRUN_DEBUG|_|SBATCH_MEM_BIND\w*"
    r"|SLURM_JOB_ID_HET_GROUP_\d|SLURM_\w+_(HET|PACK)_GROUP_\d"
)
"""Variables whose values are of the moment: ids, ports, nodes, cores, times."""

INDICES_ENV = (
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "SLURM_JOB_GPUS",
    "SLURM_STEP_GPUS",
)
"""Variables of which only the form counts."""

CHANCE_JOB = re.compile(
    r"JobId|ArrayJobId|HetJobId|HetJobIdSet|Priority|\w*Time|SecsPreSuspend|LastSchedEval|Scheduler|AllocNode:Sid|\w*NodeList|BatchHost"
    r"|NodeListIndices|Deadline|SLUID|UserId|GroupId"
)
CHANCE_LINE = re.compile(
    r"(srun|salloc): ([Pp]ending job allocation ID|job ID (queued and waiting for|has been allocated) resources"
    r"|Waiting for resource configuration|Nodes NODE are ready for job|Granted job allocation ID"
    r"|Job allocation ID has been revoked\.)"
    r"|srun: (Job step creation temporarily disabled, retrying.*|Job ID step creation .*|Step created for .*)"
)
"""Lines that tell whether Slurm was busy."""

TIMED_JOB = ("TimeLimit", "TimeMin")
"""Fields that end like a time, and are the user's."""


def shown(name: str, value: str, record: Record) -> str:
    if name in INDICES_ENV:
        parts = value.split(",")
        if all(part.isdigit() for part in parts) and len(set(parts)) == len(parts):
            return f"{len(parts)} integers"
        if all(part.startswith("GPU-") for part in parts) and len(set(parts)) == len(parts):
            return f"{len(parts)} UUIDs"
        return value
    if CHANCE_ENV.fullmatch(name):
        return "of the moment"
    return plain(value, record)


def said(text: str, record: Record) -> list[str]:
    lines = (line for line in plain(text, record).splitlines() if line.strip())
    return [line for line in lines if not CHANCE_LINE.fullmatch(line)]


def plain(text: str, record: Record) -> str:
    """Return a text without what is of the moment: folders, ids, nodes, times."""
    text = text.replace(record["work"], "WORK")
    root = record["work"].rpartition("/")[0]
    text = text.replace(root, "ROOT")
    for each in sorted(_ids(record), key=len, reverse=True):
        text = re.sub(rf"(?<!\d){each}(?!\d)", "ID", text)
    text = re.sub(r"(?<![\w-])n(\[0-1\]|[01](,n1)?)(?!\w)|(?<=slurmstepd-)n[01]", "NODE", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?", "TIME", text)
    text = re.sub(r"(?<=job )\d+|(?<=StepId=)\d+|(?<=allocation )\d+|(?<=JobId=)\d+", "ID", text)
    text = re.sub(r"GPU-[0-9a-f]{4}[0-9a-f-]*", "UUID", text)
    text = text.replace("365-00:00:00", "UNLIMITED")  # as it is shown of a job that runs
    return re.sub(r"/forms/(\S+): line (\d+): \d+", r"/forms/\1: line \2: PID", text)


def _ids(record: Record) -> set[str]:
    ids = {record["job_id"]} if record["job_id"] else set()
    return ids | {row["JobId"] for row in record["jobs"]}


def is_allowed(where: str, found: str) -> bool:
    return any(
        one.where == where and re.fullmatch(one.added, found, re.DOTALL) for one in ALLOWED_DIFFERENCES
    )
