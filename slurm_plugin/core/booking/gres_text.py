"""GRES text as Slurm writes it, in every spelling from 22.05 to 26.05.

22.05 says `gres:gpu:a100:2`, later versions `gres/gpu:a100:2` or `gres/gpu=2`; users type `gpu:2` or `gpu`.
Source: slurm.conf(5), gres.conf(5); the differences were read off running clusters.
"""

from __future__ import annotations

import re

from slurm_plugin.core.errors import WireError
from slurm_plugin.core.records.submission import GresItem
from slurm_plugin.core.units import GIB, KIB, MIB

GPU_ENVIRONMENT = (
    "SLURM_CPUS_PER_GPU",
    "SLURM_GPUS",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_SOCKET",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GPU_BIND",
    "SLURM_MEM_PER_GPU",
    "SLURM_TRES_BIND",
)
"""Variables that sbatch puts into a job's environment and an srun inside it reads back as options: one that names GPUs
would make the step request what the job no longer has (sbatch(1), OUTPUT ENVIRONMENT). job_submit can only blank
them; srun takes that for "not given" except for the CPUS, MEM and BIND ones, so TaskProlog unsets blank ones."""

GPU_COUNTS = ("SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK")
"""Those that scripts read, too, as in `torchrun --nproc_per_node=$SLURM_GPUS_PER_NODE`. TaskProlog restores them
where cli_filter.lua translates the GPU requests of a job's steps to its shards (lua/rad_step.lua)."""

MEMORY_BY_GPU = "RAD_MEMORY_BY_GPU"
"""Set where a job's memory by node stands for memory by GPU. TaskProlog then unsets SLURM_MEM_PER_NODE: Slurm sets
none for such a job, and one that it submits would inherit it next to SLURM_MEM_PER_CPU, which srun refuses."""

_PREFIX = re.compile(r"^gres[:/]")
_SUFFIX = {"K": KIB, "M": MIB, "G": GIB}
_COUNT = re.compile(r"^(\d{1,9})([KMG]?)$", re.IGNORECASE)
_INDEX = re.compile(r"\([^)]*\)")
"""Which devices, and since 23.11 how much of each: `gpu:2(IDX:0-1)`, `shard:3(0/39,3/39)`."""
_LONGEST = 4096


def parse_gres(text: str | None) -> tuple[GresItem, ...]:
    """Return the items of a GRES request; nothing for None or "".

    Raises:
        WireError: The text is longer than any request can be.

    >>> parse_gres("gres:gpu:a100:2,shard:3")
    (GresItem(name='gpu', type='a100', count=2), GresItem(name='shard', type=None, count=3))
    >>> parse_gres("gres/gpu=1"), parse_gres("gpu")
    ((GresItem(name='gpu', type=None, count=1),), (GresItem(name='gpu', type=None, count=1),))
    """
    if not text:
        return ()
    if len(text) > _LONGEST:
        raise WireError(f"a GRES request of {len(text)} characters")
    return tuple(_item(part) for part in _INDEX.sub("", text).split(",") if part)


def _item(text: str) -> GresItem:
    name, *rest = re.split(r"[:=]", _PREFIX.sub("", text))
    count = 1
    if rest and (match := _COUNT.match(rest[-1])):
        count = int(match.group(1)) * _SUFFIX.get(match.group(2).upper(), 1)
        rest = rest[:-1]
    return GresItem(name=name, type=":".join(rest) or None, count=count)


def count_of(items: tuple[GresItem, ...], name: str) -> int:
    """Return how many of a GRES are requested in total, whatever the type.

    Args:
        items: The items of a request.
        name: Name of the GRES: "gpu", "shard".
    """
    return sum(item.count for item in items if item.name == name)


def others(text: str | None, *, keep_prefix: bool) -> str:
    """Return the parts of a request that are about neither GPUs nor shards, as they were written.

    Args:
        text: A GRES or TRES request, or None.
        keep_prefix: Whether `gres/` stays; job_submit's `gres` field adds it by itself.

    >>> others("gres/gpu:1,gres/nvme:100", keep_prefix=False), others("cpu=4,gres/gpu=1", keep_prefix=True)
    ('nvme:100', 'cpu=4')
    """
    kept = [
        part
        for part in _INDEX.sub("", text or "").split(",")
        if part and _item(part).name not in ("gpu", "shard") and _item(part).name.lower() != "none"
    ]
    return ",".join(kept if keep_prefix else [_PREFIX.sub("", part) for part in kept])


def is_mig(item: GresItem) -> bool:
    """Return whether an item names a MIG profile, e.g. `gpu:1g.10gb:1`.

    >>> is_mig(GresItem(name="gpu", type="1g.10gb")), is_mig(GresItem(name="gpu", type="a100"))
    (True, False)
    """
    return item.type is not None and re.search(r"\dg\.\d+gb", item.type) is not None
