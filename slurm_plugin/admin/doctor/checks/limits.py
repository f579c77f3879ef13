"""Checks of `rad doctor` on accounting: limits and billing count jobs that share GPUs as they count GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from slurm_plugin.admin.billing import Weights, fair, line, parse_weights, unit
from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.finding import Finding, fail, ok, unseen, warn
from slurm_plugin.admin.doctor.fixes import command
from slurm_plugin.admin.doctor.slurm_state import gpu_nodes, partitions, row_of, settings, sharing, slurm_conf
from slurm_plugin.slurm.files.conf_files import keeps_accounts
from slurm_plugin.slurm.queries.limits import Limit

_SUBJECT = "accounts"
_ALWAYS = "(null) cpu mem energy node billing fs/disk vmem pages gres/gpu gres/shard"
"""slurm.conf(5), AccountingStorageTRES: the first ones are counted on every cluster, the last two are added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Billing:
    """Billing of GPUs in a site's partitions.

    Attributes:
        partitions: Name -> weights and shards per GPU of each partition with GPUs; 0 shards where GPUs are not shared.
    """

    partitions: Mapping[str, tuple[Weights, int]]

    @property
    def most_shards(self) -> int:
        """Return the shards of the GPU with the most; 0 if none is shared."""
        return max((shards for _, shards in self.partitions.values()), default=0)

    @property
    def worths(self) -> set[Fraction]:
        """Return the cost of a GPU in each partition where it is not zero."""
        return {weights.gpu for weights, _ in self.partitions.values() if weights.gpu}

    @property
    def wrong(self) -> list[str]:
        """Return the partitions where a GPU costs nothing, or not the same as all of its shards."""
        return [
            name
            for name, (weights, shards) in self.partitions.items()
            if not weights.gpu or (shards and not fair(weights, shards))
        ]

    @property
    def fixed(self) -> dict[str, tuple[Weights, int]]:
        """Return the partitions with a GPU cost of zero set to the highest cost anywhere."""
        base = max(self.worths, default=Fraction(1))
        return {
            name: (replace(weights, gpu=weights.gpu or base), shards)
            for name, (weights, shards) in self.partitions.items()
        }

    @property
    def factor(self) -> int:
        """Return the factor for all weights that makes those of shards whole numbers."""
        return unit(self.fixed) if self.wrong else 1

    @property
    def worth(self) -> Fraction:
        """Return the intended cost of a GPU."""
        return max(self.worths, default=Fraction(1)) * self.factor


def check_limits(facts: Facts) -> Iterator[Finding]:
    """Check that limits on GPUs apply to shards too, and that a GPU costs the same however it is requested."""
    running = settings(facts)
    if not keeps_accounts(running):
        return  # without a database there are neither limits nor fair share
    billing = _Billing(partitions=_partitions(facts))
    if not billing.most_shards:
        return
    by_gpu = [limit for limit in facts.limits or () if limit.gpus is not None]
    matters = bool(by_gpu or billing.worths)
    untracked = list(_check_tracked(facts, running, matters=matters))
    yield from untracked
    if facts.limits is None:
        yield unseen(_SUBJECT, "sacctmgr does not answer here, so limits on GPUs were not looked at")
    if not matters:
        yield ok(_SUBJECT, "no limit or billing counts GPUs")
        return
    if by_gpu and "limits" not in running.get("accountingstorageenforce", "").lower():
        text = "there are limits on GPUs, and AccountingStorageEnforce has no limits: they are not enforced"
        fix = "AccountingStorageEnforce=associations,limits,qos, once every user has an association"
        yield warn(_SUBJECT, text, fix)
    unfair = list(_check_weights(facts, billing))
    yield from unfair
    if len(billing.worths) > 1 and by_gpu:
        text = "partitions bill GPUs differently, so no amount of billing stands for a number of GPUs"
        fix = "give each such partition a QOS with its own limits (PartitionName=... QOS=...)"
        yield warn(_SUBJECT, text, fix)
    worth = billing.worth
    loose = [found for limit in by_gpu for found in _check_limit(limit, worth, billing.most_shards)]
    yield from loose
    yield from _check_parts(facts, worth)
    if not (untracked or unfair or loose):
        text = (
            f"a GPU is billed {_shown(worth)}, as are all of its shards; {len(by_gpu)} limits are consistent"
        )
        yield ok(_SUBJECT, text)


def check_tracked(facts: Facts) -> Iterator[Finding]:
    """Check that accounts count shards: else shared jobs are missing in sacct and `rad advise`."""
    if keeps_accounts(settings(facts)) and _Billing(partitions=_partitions(facts)).most_shards:
        yield from _check_tracked(facts, settings(facts), matters=False)


def _check_tracked(facts: Facts, running: Mapping[str, str], *, matters: bool) -> Iterator[Finding]:
    """Check that Slurm counts shards at all; where it `matters`, limits or billing depend on it."""
    tracked = [each.strip() for each in running.get("accountingstoragetres", "").lower().split(",")]
    if "gres/shard" in tracked:
        return
    text = "AccountingStorageTRES has no gres/shard: sacct, limits and billing do not see shared jobs"
    named = [each for each in tracked if each and each not in _ALWAYS.split()]
    change = slurm_conf(facts, "AccountingStorageTRES", ",".join([*named, "gres/gpu", "gres/shard"]))
    yield (fail if matters else warn)(_SUBJECT, text, (change, command("systemctl restart slurmctld")))


def _check_weights(facts: Facts, billing: _Billing) -> Iterator[Finding]:
    """Check that each partition bills GPUs, and all shards of a GPU the same as the GPU.

    Where weights must be multiplied, one finding has all lines: half of them would make some partitions cheaper.
    """
    factor, fixed = billing.factor, billing.fixed
    lines = {name: line(*weights, factor) for name, weights in fixed.items()}
    problems = {name: _bills(name, *billing.partitions[name]) for name in billing.wrong}
    if factor == 1:
        for name, text in problems.items():
            yield _weighed(facts, f"{text}: GPUs and shards must add up to one number", {name: lines[name]})
    elif problems:
        text = f"{'; '.join(problems.values())}: GPUs and shards must add up to one number"
        others = _without_gpus(facts, factor) if billing.worths else {}
        if others:
            text += f"; other weights are multiplied by {factor} too, as partitions are compared"
        yield _weighed(facts, text, lines | others)


def _bills(name: str, given: Weights, shards: int) -> str:
    each = f", each of its {shards} shards {_shown(given.shard)}" if shards else ""
    return f"partition {name} bills a GPU {_shown(given.gpu)}{each}"


def _without_gpus(facts: Facts, factor: int) -> dict[str, str]:
    """Return the multiplied weights of partitions without GPUs; one without weights bills its CPUs (slurm.conf(5))."""
    found = {}
    for name, row in partitions(facts).items():
        if not gpu_nodes(facts, row):
            given = parse_weights(row.get("tresbillingweights", "")).times(factor) or {"CPU": str(factor)}
            found[name] = ",".join(f"{each}={value}" for each, value in given.items())
    return found


def _weighed(facts: Facts, text: str, lines: Mapping[str, str]) -> Finding:
    rows = {name: row_of(facts, "partitionname", name, "TRESBillingWeights", lines[name]) for name in lines}
    if all(rows.values()):
        return fail(_SUBJECT, text, tuple(action for row in rows.values() for action in row))
    return fail(
        _SUBJECT,
        text,
        "\n".join(f"PartitionName={name} ... TRESBillingWeights={wanted}" for name, wanted in lines.items()),
    )


def _check_parts(facts: Facts, worth: Fraction) -> Iterator[Finding]:
    """Check limits below one GPU: they block the whole GPU that a rerun after running out of memory requests."""
    if not any(partition.recovery != "off" for _, partition in sharing(facts)):
        return
    for limit in facts.limits or ():
        billing = limit.tres.get("billing", 0)
        if limit.name in ("MaxTRESPerJob", "MaxTRESPerUser", "GrpTRES") and 0 < billing < math.floor(worth):
            text = f"{limit.owner}: {limit.name}=billing={billing} is less than a GPU ({_shown(worth)})"
            fix = 'recovery = "off" in such a partition: a rerun with a whole GPU would stay pending forever'
            yield warn(_SUBJECT, text, fix)


def _check_limit(limit: Limit, worth: Fraction, shards: int) -> Iterator[Finding]:
    gpus = limit.gpus or 0
    problem = f"{limit.owner}: {limit.name}=gres/gpu={gpus}"
    change = f"sacctmgr -i modify {limit.target} set {limit.name}"
    if limit.name.startswith("Min"):
        yield fail(
            _SUBJECT, f"{problem} excludes every job that shares a GPU", command(f"{change}=gres/gpu=-1")
        )
        return
    if limit.name == "MaxTRESPerNode" or not gpus:
        # Billing is not an amount of a node, and a limit of 0 forbids all jobs.
        wanted, name = gpus * shards, "gres/shard"
    else:
        wanted, name = math.floor(gpus * worth), "billing"
    have = limit.tres.get(name)
    if have is None or have > wanted:
        text = f"{problem} does not count jobs that share a GPU"
        if have is not None:
            text = f"{problem}, but {name}={have} allows more"
        yield fail(_SUBJECT, text, command(f"{change}={name}={wanted}"))


def _partitions(facts: Facts) -> dict[str, tuple[Weights, int]]:
    """Return the partitions with GPUs, in the form that `_Billing` uses."""
    if facts.config is None:
        return {}
    found = {}
    for name, row in partitions(facts).items():
        configured = facts.config.partitions.get(name)
        if gpu_nodes(facts, row):
            # Of several sizes use the smallest: then a limit of one GPU never allows more than one.
            shards = configured.sizes[0].shards if configured and configured.collocate else 0
            found[name] = (parse_weights(row.get("tresbillingweights", "")), shards)
    return found


def _shown(number: Fraction | None) -> str:
    return "nothing" if number is None else f"{float(number):g}"
