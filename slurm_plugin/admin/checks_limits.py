"""The checks of `rad doctor` on accounts: limits and billing count jobs that share GPUs as they count GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from slurm_plugin.admin.edits import command
from slurm_plugin.admin.facts import Facts
from slurm_plugin.admin.finding import Finding, fail, ok, unseen, warn
from slurm_plugin.admin.seen import gpu_nodes, partitions, row_of, settings, sharing, slurm_conf
from slurm_plugin.admin.worth import Weights, fair, line, parse_weights, unit
from slurm_plugin.slurm.conf_files import keeps_accounts
from slurm_plugin.slurm.limits import Limit

_SUBJECT = "accounts"
_ALWAYS = "(null) cpu mem energy node billing fs/disk vmem pages gres/gpu gres/shard"
"""slurm.conf(5), AccountingStorageTRES: the first ones are counted on every cluster, the last two are added."""


def check_limits(facts: Facts) -> Iterator[Finding]:
    """Limits that name GPUs hold for shards too, and a GPU costs the same in whichever way it is taken."""
    running = settings(facts)
    if not keeps_accounts(running):
        return  # without a database there are neither limits nor fair share
    found_there = _partitions(facts)
    if not any(shards for _, shards in found_there.values()):
        return
    counted = [each.strip() for each in running.get("accountingstoragetres", "").lower().split(",")]
    by_gpu = [limit for limit in facts.limits or () if limit.gpus is not None]
    weighed = any(weights.gpu for weights, _ in found_there.values())
    if "gres/shard" not in counted:
        text = "AccountingStorageTRES has no gres/shard: sacct, limits and billing do not see shared jobs"
        named = [each for each in counted if each and each not in _ALWAYS.split()]
        change = slurm_conf(facts, "AccountingStorageTRES", ",".join([*named, "gres/gpu", "gres/shard"]))
        fixes = (change, command("systemctl restart slurmctld"))
        yield (fail if by_gpu or weighed else warn)(_SUBJECT, text, fixes)
    if facts.limits is None:
        yield unseen(_SUBJECT, "sacctmgr does not answer here, so limits on GPUs were not looked at")
    if not by_gpu and not weighed:
        yield ok(_SUBJECT, "nobody is limited or billed by GPUs")
        return
    if by_gpu and "limits" not in running.get("accountingstorageenforce", "").lower():
        text = "there are limits on GPUs, and AccountingStorageEnforce has no limits: nobody is held to them"
        yield warn(
            _SUBJECT,
            text,
            "AccountingStorageEnforce=associations,limits,qos, once every user has an association",
        )
    worths = {weights.gpu for weights, _ in found_there.values() if weights.gpu}
    base = max(worths, default=Fraction(1))
    wrong = [
        name
        for name, (weights, shards) in found_there.items()
        if not weights.gpu or (shards and not fair(weights, shards))
    ]
    filled = {
        name: (replace(weights, gpu=weights.gpu or base), shards)
        for name, (weights, shards) in found_there.items()
    }
    factor = unit(filled) if wrong else 1
    for name in filled if factor > 1 else wrong:
        given, shards = found_there[name][0], found_there[name][1]
        each = f", each of its {shards} shards {_shown(given.shard)}" if shards else ""
        text = f"partition {name} bills a GPU {_shown(given.gpu)}{each}: GPUs and shards must add up to one number"
        wanted = line(*filled[name], factor)
        deeds = row_of(facts, "partitionname", name, "TRESBillingWeights", wanted)
        yield fail(_SUBJECT, text, deeds or f"PartitionName={name} ... TRESBillingWeights={wanted}")
    worth = base * factor
    if len(worths) > 1 and by_gpu:
        text = "partitions bill GPUs differently, so no amount of billing stands for a number of GPUs"
        yield warn(
            _SUBJECT,
            text,
            "give each such partition a QOS with limits of its own (PartitionName=... QOS=...)",
        )
    found = [finding for limit in by_gpu for finding in _check_limit(limit, worth, _most_shards(found_there))]
    yield from found
    yield from _check_parts(facts, worth)
    if not wrong and not found and "gres/shard" in counted:
        yield ok(
            _SUBJECT, f"a GPU is billed {_shown(worth)}, as are all of its shards; {len(by_gpu)} limits hold"
        )


def _check_parts(facts: Facts, worth: Fraction) -> Iterator[Finding]:
    """Who may have less than a GPU never gets the whole one that a rerun after running out of memory asks for."""
    if not any(partition.recovery != "off" for _, partition in sharing(facts)):
        return
    for limit in facts.limits or ():
        billing = limit.tres.get("billing", 0)
        if limit.name in ("MaxTRESPerJob", "MaxTRESPerUser", "GrpTRES") and 0 < billing < math.floor(worth):
            text = f"{limit.owner}: {limit.name}=billing={billing} is less than a GPU ({_shown(worth)})"
            fix = 'recovery = "off" in such a partition: a rerun with a GPU of its own would wait for ever'
            yield warn(_SUBJECT, text, fix)


def _check_limit(limit: Limit, worth: Fraction, shards: int) -> Iterator[Finding]:
    gpus = limit.gpus or 0
    said = f"{limit.owner}: {limit.name}=gres/gpu={gpus}"
    change = f"sacctmgr -i modify {limit.target} set {limit.name}"
    if limit.name.startswith("Min"):
        yield fail(
            _SUBJECT, f"{said} keeps out every job that shares a GPU", command(f"{change}=gres/gpu=-1")
        )
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
        yield fail(_SUBJECT, text, command(f"{change}={name}={wanted}"))


def _partitions(facts: Facts) -> dict[str, tuple[Weights, int]]:
    """Return each partition that has GPUs, with its weights and the shards of a GPU; 0 where GPUs are not shared."""
    if facts.config is None:
        return {}
    found = {}
    for name, row in partitions(facts).items():
        ours = facts.config.partitions.get(name)
        if gpu_nodes(facts, row):
            # Of several sizes the smallest: a limit of one GPU is then never more than one.
            shards = ours.sizes[0].shards if ours and ours.collocate else 0
            found[name] = (parse_weights(row.get("tresbillingweights", "")), shards)
    return found


def _most_shards(partitions: Mapping[str, tuple[Weights, int]]) -> int:
    return max(shards for _, shards in partitions.values())


def _shown(number: Fraction | None) -> str:
    return "nothing" if number is None else f"{float(number):g}"
