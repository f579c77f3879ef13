"""Check of `rad doctor` that slurmd detects on this node what slurm.conf promises."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.finding import Finding, fail, ok, warn
from slurm_plugin.admin.doctor.slurm_state import nodes, row_of, shards_of
from slurm_plugin.core.booking.gres_text import count_of, parse_gres
from slurm_plugin.core.units import counted


def check_detected(facts: Facts) -> Iterator[Finding]:
    """Check detected hardware: a node that registers with less than in slurm.conf is drained, or never comes up."""
    found, known = facts.detected, nodes(facts)
    if found is not None and found.no_devices:
        text = f"{found.no_devices[0]} is no device: a job that Slurm gives it starts without it, and RAD requeues it"
        fix = "File= must name the GPU's device, such as /dev/nvidia0; then restart slurmd"
        yield fail("gres.conf", text, fix)
    name = _this_node(facts)
    if found is None or name is None:
        return
    row = known[name]
    configured = count_of(parse_gres(row.get("gres")), "gpu"), shards_of(row)
    subject, detail = (
        "detected",
        f"slurmd finds {counted(found.gpus, 'GPU')} and {counted(found.shards, 'shard')} here",
    )
    if (found.gpus, found.shards) == configured:
        yield ok(subject, f"{detail}, as slurm.conf says of {name}")
    elif found.gpus < configured[0] or found.shards < configured[1]:
        text = f"{detail}, and slurm.conf says {configured[0]} and {configured[1]} of {name}: slurmctld drains it"
        yield fail(
            subject, text, "compare gres.conf with `slurmd -G`, or look for the GPU that nvidia-smi lacks"
        )
    else:
        text = f"{detail}, and slurm.conf says {configured[0]} and {configured[1]} of {name}: the rest is never used"
        yield warn(subject, text, "give the node's Gres in slurm.conf what `slurmd -G` shows")
    promised = row.get("realmemory", "")
    overridden = facts.slurm is not None and "config_overrides" in facts.slurm.settings.get(
        "slurmdparameters", ""
    )
    if promised.isdigit() and found.memory_mib and int(promised) > found.memory_mib and not overridden:
        text = f"{name} has {found.memory_mib} MiB of memory, and slurm.conf says {promised}: slurmctld drains it"
        actions = row_of(facts, "nodename", name, "RealMemory", str(found.memory_mib))
        yield fail(subject, text, actions or "what `slurmd -C` says")


def _this_node(facts: Facts) -> str | None:
    """Return Slurm's name of this machine if it has exactly one."""
    known = nodes(facts)
    if facts.node in known:
        return facts.node
    here = [name for name, row in known.items() if facts.node in (row.get("nodehostname", name), "")]
    return here[0] if len(here) == 1 and facts.node else None
