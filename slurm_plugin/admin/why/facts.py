"""Facts about a job: the GPUs that it requests, and the nodes that may provide them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from slurm_plugin.admin.top.fleet import NodeAnswer
from slurm_plugin.core.booking.gres_text import count_of, parse_gres
from slurm_plugin.core.comments.admin_comment import Note, read_note
from slurm_plugin.core.comments.signed_comment import shown_booking
from slurm_plugin.core.config.load import Config, PartitionConfig
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.slurm.control import JobView, NodeView
from slurm_plugin.slurm.queries.queue import WaitingJob

_UNUSABLE = re.compile(r"(?:DOWN|DRAIN|DRAINED|DRAINING|ERROR|FAIL|FAILING|FUTURE|MAINT|UNKNOWN)\b|\w+\*")
"""States of nodes that start no jobs; * marks one that does not respond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFacts:
    """What was found.

    Attributes:
        time_s: When, seconds since the epoch.
        job: The job, as Slurm sees it.
        config: rad.toml; without any partition if it cannot be read.
        nodes: Slurm's nodes.
        waiting: Jobs that wait for GPUs.
        fleet: Answers of the rad-monitors of its partitions' nodes.
        missing: Sources that could not be read, one sentence each.
    """

    time_s: float
    job: JobView
    config: Config = field(default_factory=Config)
    nodes: Sequence[NodeView] = ()
    waiting: Sequence[WaitingJob] = ()
    fleet: Sequence[NodeAnswer] = ()
    missing: tuple[str, ...] = ()

    @property
    def partitions(self) -> list[str]:
        """Return the partitions that it may start in."""
        return self.job.partition.split(",")

    @property
    def settings(self) -> PartitionConfig | None:
        """Return its partition's settings; None if rad.toml does not name it."""
        return self.config.partition(self.job.partition)

    @property
    def booking(self) -> Booking | None:
        """Return its booking, as its comment shows it."""
        return shown_booking(self.job.comment)

    @property
    def note(self) -> Note | None:
        """Return RAD's note on the run that waits or runs now."""
        note = read_note(self.job.admin_comment)
        return note if note is not None and note.restart in (None, self.job.restarts) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRequest:
    """What a job requests of GPUs.

    Attributes:
        gpus: Number of GPUs.
        type: Their type; "" if any will do.
        shards: Shards of each; 0 for whole GPUs.
        memory_bytes: Booked memory of each; 0 for whole GPUs.
    """

    gpus: int
    type: str = ""
    shards: int = 0
    memory_bytes: int = 0


def need_of(facts: WaitFacts) -> GpuRequest | None:
    """Return what a job requests of GPUs; None if it requests none."""
    items, booking = parse_gres(facts.job.gres), facts.booking
    shards, gpus = count_of(items, "shard"), count_of(items, "gpu")
    kind = next((item.type for item in items if item.name in ("gpu", "shard") and item.type), None) or ""
    if not shards:
        return GpuRequest(gpus=gpus, type=kind) if gpus else None
    number = max(1, booking.gpus) if booking else 1  # its user may have written the comment
    each = booking.shards // number if booking and booking.shards else shards
    most = max((shards_of(node) for node in of_type(nodes_of(facts), kind)), default=0)
    if each == most or (booking is not None and booking.kind == "whole"):
        return GpuRequest(gpus=number, type=kind)
    shard_bytes = (facts.settings or PartitionConfig()).shard_bytes
    memory_bytes = booking.memory_bytes if booking and booking.memory_bytes else each * shard_bytes
    return GpuRequest(gpus=number, type=kind, shards=each, memory_bytes=memory_bytes)


def nodes_of(facts: WaitFacts) -> list[NodeView]:
    """Return the nodes with GPUs in a job's partitions."""
    return [
        node
        for node in facts.nodes
        if set(node.partitions) & set(facts.partitions) and count_of(parse_gres(node.gres), "gpu")
    ]


def of_type(nodes: Sequence[NodeView], kind: str) -> list[NodeView]:
    """Return nodes with GPUs of a type; each only with its part of that type.

    Args:
        nodes: Nodes with GPUs.
        kind: The type; "" for any.
    """
    found = []
    for node in nodes:
        items = [item for item in parse_gres(node.gres) if item.name in ("gpu", "shard")]
        if not kind:
            found.append(node)
        elif any(item.name == "gpu" and item.type == kind for item in items):
            # Shards may have no type although the GPUs have one.
            typed = [item for item in items if item.type == kind]
            if not any(item.name == "shard" for item in typed):
                typed = items
            text = ",".join(f"{item.name}:{item.count}" for item in typed)
            found.append(replace(node, gres=text))
    return found


def shards_of(node: NodeView) -> int:
    """Return the shards of one of a node's GPUs."""
    items = parse_gres(node.gres)
    return count_of(items, "shard") // max(1, count_of(items, "gpu"))


def is_usable(node: NodeView) -> bool:
    """Return whether a node starts jobs."""
    return _UNUSABLE.match(node.state) is None
