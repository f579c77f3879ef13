"""The checks of `rad doctor` on accounts: limits and billing count jobs that share GPUs as they count GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from slurm_plugin.admin.facts import Facts
from slurm_plugin.admin.finding import Finding, fail, ok, unseen, warn
from slurm_plugin.admin.worth import Weights, fair, line, parse_weights, unit
from slurm_plugin.core.gres import count_of, parse_gres
from slurm_plugin.slurm.conf_files import keeps_accounts
from slurm_plugin.slurm.conf_lines import expand
from slurm_plugin.slurm.limits import Limit

_SUBJECT = "accounts"
_ALWAYS_COUNTED = frozenset(
    (
        "",
        "(null)",
        "cpu",
        "mem",
        "energy",
        "node",
        "billing",
        "fs/disk",
        "vmem",
        "pages",
        "gres/gpu",
        "gres/shard",
    )
)
"""slurm.conf(5), AccountingStorageTRES: the first ones are counted on every cluster."""


def check_limits(facts: Facts) -> Iterator[Finding]:
    """Limits that name GPUs hold for shards too, and a GPU costs the same in whichever way it is taken."""
    settings = _settings(facts)
    if not keeps_accounts(settings):
        return  # without a database there are neither limits nor fair share
    partitions = _partitions(facts)
    if not any(shards for _, shards in partitions.values()):
        return
    counted = [each.strip() for each in settings.get("accountingstoragetres", "").lower().split(",")]
    by_gpu = [limit for limit in facts.limits or () if limit.gpus is not None]
    weighed = any(weights.gpu for weights, _ in partitions.values())
    if "gres/shard" not in counted:
        text = "AccountingStorageTRES has no gres/shard: sacct, limits and billing do not see shared jobs"
        named = [each for each in counted if each not in _ALWAYS_COUNTED]
        fix = f"AccountingStorageTRES={','.join([*named, 'gres/gpu', 'gres/shard'])}, and restart slurmctld"
        yield (fail if by_gpu or weighed else warn)(_SUBJECT, text, fix)
    if facts.limits is None:
        yield unseen(_SUBJECT, "sacctmgr does not answer here, so limits on GPUs were not looked at")
    if not by_gpu and not weighed:
        yield ok(_SUBJECT, "nobody is limited or billed by GPUs")
        return
    worths = {weights.gpu for weights, _ in partitions.values() if weights.gpu}
    base = max(worths, default=Fraction(1))
    wrong = [
        name
        for name, (weights, shards) in partitions.items()
        if not weights.gpu or (shards and not fair(weights, shards))
    ]
    filled = {
        name: (replace(weights, gpu=weights.gpu or base), shards)
        for name, (weights, shards) in partitions.items()
    }
    factor = unit(filled) if wrong else 1
    for name in filled if factor > 1 else wrong:
        given, shards = partitions[name][0], partitions[name][1]
        each = f", each of its {shards} shards {_shown(given.shard)}" if shards else ""
        text = f"partition {name} bills a GPU {_shown(given.gpu)}{each}: GPUs and shards must add up to one number"
        fix = f"PartitionName={name} ... TRESBillingWeights={line(*filled[name], factor)}"
        yield fail(_SUBJECT, text, fix)
    worth = base * factor
    if len(worths) > 1 and by_gpu:
        text = "partitions bill GPUs differently, so no amount of billing stands for a number of GPUs"
        yield warn(
            _SUBJECT,
            text,
            "give each such partition a QOS with limits of its own (PartitionName=... QOS=...)",
        )
    found = [finding for limit in by_gpu for finding in _check_limit(limit, worth, _most_shards(partitions))]
    yield from found
    if not wrong and not found and "gres/shard" in counted:
        yield ok(
            _SUBJECT, f"a GPU is billed {_shown(worth)}, as are all of its shards; {len(by_gpu)} limits hold"
        )


def _check_limit(limit: Limit, worth: Fraction, shards: int) -> Iterator[Finding]:
    gpus = limit.gpus or 0
    said = f"{limit.owner}: {limit.name}=gres/gpu={gpus}"
    change = f"sacctmgr -i modify {limit.target} set {limit.name}"
    if limit.name.startswith("Min"):
        yield fail(_SUBJECT, f"{said} keeps out every job that shares a GPU", f"{change}=gres/gpu=-1")
        return
    if (
        limit.name == "MaxTRESPerNode" or not gpus
    ):  # billing is no amount of a node, and 0 of it forbids all jobs
        wanted, name = gpus * shards, "gres/shard"
    else:
        wanted, name = math.floor(gpus * worth), "billing"
    have = limit.tres.get(name)
    if have is None or have > wanted:
        text = f"{said} does not count jobs that share a GPU"
        if have is not None:
            text = f"{said}, but {name}={have} allows more"
        yield fail(_SUBJECT, text, f"{change}={name}={wanted}")


def _settings(facts: Facts) -> Mapping[str, str]:
    """Return Slurm's settings as slurmctld runs with them; as slurm.conf says where that cannot be asked."""
    if facts.live is not None:
        return facts.live.settings
    return {} if facts.slurm is None else facts.slurm.settings


def _partitions(facts: Facts) -> dict[str, tuple[Weights, int]]:
    """Return each partition that has GPUs, with its weights and the shards of a GPU; 0 where GPUs are not shared."""
    if facts.config is None:
        return {}
    gpus = {node for node, gres in _gres_of_nodes(facts) if count_of(parse_gres(gres), "gpu")}
    found = {}
    for name, row in _rows_of_partitions(facts):
        nodes = expand(row.get("nodes", ""))
        settings = facts.config.partitions.get(name)
        if gpus.intersection(nodes) or (gpus and "ALL" in nodes):
            shards = settings.shards if settings and settings.collocate else 0
            found[name] = (parse_weights(row.get("tresbillingweights", "")), shards)
    return found


def _gres_of_nodes(facts: Facts) -> Iterator[tuple[str, str]]:
    if facts.live is not None:
        yield from ((name, row.get("gres", "")) for name, row in facts.live.nodes.items())
    elif facts.slurm is not None:
        for row in facts.slurm.lines:
            yield from ((node, row.get("gres", "")) for node in expand(row.get("nodename", "")))


def _rows_of_partitions(facts: Facts) -> Iterator[tuple[str, Mapping[str, str]]]:
    if facts.live is not None:
        yield from facts.live.partitions.items()
        return
    default: Mapping[str, str] = {}
    for row in () if facts.slurm is None else facts.slurm.lines:
        name = row.get("partitionname", "")
        if name.upper() == "DEFAULT":
            default = {**default, **row}
        elif name:
            yield name, {**default, **row}


def _most_shards(partitions: Mapping[str, tuple[Weights, int]]) -> int:
    return max(shards for _, shards in partitions.values())


def _shown(number: Fraction | None) -> str:
    return "nothing" if number is None else f"{float(number):g}"
