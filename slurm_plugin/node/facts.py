"""Cache of node facts, so that hooks need not ask Slurm or the driver each time: RUN/node.json.

Written by rad-monitor when it starts and each hour, or by the first hook that misses it; invalid after a reboot and
when slurm.conf changes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from slurm_plugin.core.booking.gres_text import count_of, parse_gres
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.files.preallocated import SpareFiles
from slurm_plugin.core.placement.choose import Pin
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.files.conf_files import find_slurm_conf


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpu:
    """One GPU.

    Attributes:
        uuid: The GPU.
        index: The number that Slurm uses.
        usable_bytes: Memory that processes can use in total.
        mig: The GPU is partitioned.
    """

    uuid: str
    index: int
    usable_bytes: int
    mig: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """Facts about this node.

    Attributes:
        name: Slurm's name for it; "" if unknown.
        slurm_conf: SLURM_CONF of its slurmd; None if unknown.
        partitions: Partitions that it serves; none if Slurm did not answer.
        shards: Shards of all its GPUs, from gres.conf; 0 if it has none.
        gpus: Its GPUs.
    """

    name: str = ""
    slurm_conf: str | None = None
    partitions: tuple[str, ...] = ()
    shards: int = 0
    gpus: tuple[NodeGpu, ...] = ()

    @property
    def shard_bytes(self) -> int:
        """Return the memory of one shard on this node, whatever any partition says; 0 if the node has no shards."""
        return sum(gpu.usable_bytes for gpu in self.gpus) // self.shards if self.shards else 0


def facts_of(node: Node, name: str, readings: Sequence[GpuReading] = ()) -> NodeFacts:
    """Return the facts about this node; missing ones are queried, once.

    Args:
        node: This node.
        name: Slurm's name for it, where known.
        readings: Its GPUs, if they were read anyway.
    """
    known = read_facts(node)
    complete = known is not None and (known.partitions or not name)
    if known is not None and complete and (known.gpus or not readings):
        return known
    return learn_facts(node, name or (known.name if known else ""), readings)


def learn_facts(node: Node, name: str, readings: Sequence[GpuReading]) -> NodeFacts:
    """Query all facts again and store them; if Slurm does not answer, the next hook asks again.

    Args:
        node: This node, as a hook sees it: what slurmd passes to its hooks counts.
        name: Slurm's name for it; "" if unknown.
        readings: Its GPUs, where they were read.
    """
    before = read_facts(node) or NodeFacts()
    gpus = tuple(
        NodeGpu(uuid=one.uuid, index=one.index, usable_bytes=one.usable_bytes, mig=one.mig)
        for one in readings
    )
    partitions, shards = before.partitions, before.shards
    with suppress(SlurmError):
        view = node.slurm().node(name) if name else None
        if view is not None:
            partitions, shards = view.partitions, count_of(parse_gres(view.gres), "shard")
    facts = NodeFacts(
        name=name,
        slurm_conf=before.slurm_conf or node.slurm_conf,
        partitions=partitions,
        shards=shards,
        gpus=gpus or before.gpus,
    )
    with suppress(OSError):
        node.run.mkdir(mode=0o755, parents=True, exist_ok=True)
        text = json.dumps({"of": _version(node), **asdict(facts)})
        SpareFiles(node.run).write(node.run / "node.json", text.encode())
    return facts


def refresh_facts(node: Node, readings: Sequence[GpuReading]) -> None:
    """Query again the facts that a hook has queried before: partitions may change while slurm.conf does not.

    Args:
        node: This node.
        readings: Readings of all GPUs of the node.
    """
    known = read_facts(node)
    if known is not None:
        learn_facts(node, known.name, readings)


def read_facts(node: Node) -> NodeFacts | None:
    """Return the facts stored since this boot and since slurm.conf changed; None if there are none."""
    try:
        tree = json.loads((node.run / "node.json").read_bytes())
        if tree.pop("of") != _version(node):
            return None
        gpus = tuple(NodeGpu(**row) for row in tree.pop("gpus"))
        return NodeFacts(**{**tree, "partitions": tuple(tree["partitions"]), "gpus": gpus})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def pin_of(node: Node, settings: PartitionConfig, facts: NodeFacts) -> Pin:
    """Return which GPUs a job of a partition may get.

    A job of an unmanaged partition runs on exactly the GPU that Slurm names. So on a node that also serves such a
    partition, no managed job may run on a GPU that is free in Slurm's view.

    Args:
        node: This node.
        settings: Settings of the job's partition.
        facts: Facts about the node from Slurm and the driver.
    """
    if settings.pin != "auto":
        return settings.pin
    mixed = any(not node.manages(partition) for partition in facts.partitions)
    return "slurm" if node.confined or mixed else "bound"


def _version(node: Node) -> list[str | int]:
    conf = find_slurm_conf(node.config.paths.slurm_conf, {})
    try:
        return [node.store.boot_id, 0 if conf is None else conf.stat().st_mtime_ns]
    except OSError:
        return [node.store.boot_id, 0]
