"""Checks of `rad doctor` on clusters with more than one slurmctld."""

from __future__ import annotations

import re
from collections.abc import Iterator

from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.finding import Finding, fail, unseen, warn
from slurm_plugin.admin.doctor.fixes import FixAction, record
from slurm_plugin.admin.doctor.slurm_state import in_slurm_folder
from slurm_plugin.core.booking.gres_text import parse_gres
from slurm_plugin.radd.submission.standby import no_shards
from slurm_plugin.slurm.versions import traits

_SUBJECT = "standby"


def check_standby(facts: Facts) -> Iterator[Finding]:
    """Check what a standby needs, and what Slurm before 23.11 loses at a takeover."""
    if len(facts.controllers) < 2:
        return
    first, *others = facts.controllers
    names = ", ".join(others)
    yield unseen(
        _SUBJECT, f"{names}: radd, the key and the Lua files belong there as on {first}; look there too"
    )
    yield from check_shard_types(facts)
    if facts.live is None:
        return
    for name in facts.live.silent:
        text = f"slurmctld on {name} does not answer: it cannot take over"
        yield warn(_SUBJECT, text, f"start slurmctld on {name}; its log says why it ended")
    forgets = facts.version is not None and traits(facts.version).forgets_shards
    if forgets and no_shards(row.get("gres", "") for row in facts.live.nodes.values()):
        text = "the standby that took over has no shards: new jobs get whole GPUs, pending shared jobs wait"
        yield warn(_SUBJECT, text, f"start slurmctld on {first} again, which then takes over")


def check_shard_types(facts: Facts) -> Iterator[Finding]:
    """Check that with a standby the shards in NodeName have the type of their GPUs.

    Slurm gives shards the type in gres.conf, and a standby takes over its nodes' state including it. Without the type
    in slurm.conf 22.05.8 then counts no shard of the node, and 24.11.5 sets it to INVAL
    (tests/cluster/slurm/test_standby.py).
    """
    if facts.slurm is None or len(facts.controllers) < 2:
        return
    actions: list[FixAction] = []
    names: list[str] = []
    for index, row in enumerate(facts.slurm.lines):
        gres = row.get("gres", "") if "nodename" in row else ""
        types = {item.type for item in parse_gres(gres) if item.name == "gpu" and item.type}
        if len(types) == 1 and any(item.name == "shard" and not item.type for item in parse_gres(gres)):
            typed = re.sub(r"(?<![\w:])shard:(?=\d)", f"shard:{types.pop()}:", gres)
            names.append(row["nodename"])
            actions.append(record(facts.slurm, index, in_slurm_folder(facts, "slurm.conf"), "Gres", typed))
    if actions:
        where = ", ".join(names)
        text = (
            f"{where}: without their type shards are lost when a standby takes over, on 24.11 with the node"
        )
        yield fail(_SUBJECT, text, tuple(actions))
