"""Limits of users, accounts and QOS in slurmdbd (sacctmgr(1)) that name a GPU, a shard or billing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from slurm_plugin.core.errors import CommandError, SlurmError
from slurm_plugin.core.process.run import run
from slurm_plugin.slurm.queries.columns import lines

_OF_QOS = {
    "GrpTRES": "GrpTRES",
    "GrpTRESMins": "GrpTRESMins",
    "GrpTRESRunMins": "GrpTRESRunMins",
    "MaxTRES": "MaxTRESPerJob",
    "MaxTRESPerNode": "MaxTRESPerNode",
    "MaxTRESMins": "MaxTRESMinsPerJob",
    "MaxTRESPU": "MaxTRESPerUser",
    "MaxTRESPA": "MaxTRESPerAccount",
    "MinTRES": "MinTRESPerJob",
}
"""Column of `sacctmgr show qos` -> the name for `sacctmgr modify`."""
_OF_ASSOCIATION = {
    name: _OF_QOS[name]
    for name in ("GrpTRES", "GrpTRESMins", "GrpTRESRunMins", "MaxTRES", "MaxTRESPerNode", "MaxTRESMins")
}
_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit.

    Attributes:
        owner: Its owner, for display: "QOS normal", "user bob of account lab", "account lab".
        target: The words of `sacctmgr modify` that select it: "qos where name=normal".
        name: Its name: "MaxTRESPerUser", "GrpTRES", ...
        tres: Each TRES and its amount, e.g. {"gres/gpu": 1}.
    """

    owner: str
    target: str
    name: str
    tres: Mapping[str, int]

    @property
    def gpus(self) -> int | None:
        """Return how many GPUs it allows, of any type or of one; None if it does not limit GPUs."""
        found = [count for name, count in self.tres.items() if name.partition(":")[0] == "gres/gpu"]
        return sum(found) if found else None


def read_limits(cluster: str, env: Mapping[str, str]) -> tuple[Limit, ...]:
    """Return the limits of all QOS, and of this cluster's users and accounts.

    Args:
        cluster: Slurm's name for the cluster (ClusterName).
        env: Environment for sacctmgr.

    Raises:
        SlurmError: sacctmgr does not answer.
    """
    associations = ["assoc", "where", f"cluster={cluster}"]
    try:
        qos, assoc = (
            run(
                ["sacctmgr", "-n", "-P", "show", *what, f"format={','.join(columns)}"],
                timeout_s=_TIMEOUT_S,
                env=dict(env),
            )
            for what, columns in (
                (["qos"], ("Name", *_OF_QOS)),
                (associations, ("Account", "User", "Partition", *_OF_ASSOCIATION)),
            )
        )
    except CommandError as exc:
        raise SlurmError(str(exc)) from exc
    return parse_limits(qos, assoc, cluster=cluster)


def parse_limits(qos: str, associations: str, *, cluster: str) -> tuple[Limit, ...]:
    """Return the limits that sacctmgr printed.

    Args:
        qos: Output of `sacctmgr show qos`.
        associations: Output of `sacctmgr show associations`.
        cluster: The cluster's name, for the commands that change a limit.

    >>> parse_limits("normal|||||||gres/gpu=1||", "", cluster="c")[0].name
    'MaxTRESPerUser'
    >>> parse_limits("", "lab|bob||gres/gpu=2,node=1|||||", cluster="c")[0].tres
    {'gres/gpu': 2, 'node': 1}
    """
    return (*_qos_limits(qos), *_association_limits(associations, cluster))


def _qos_limits(text: str) -> Iterator[Limit]:
    for line in lines(text):
        name, *values = line.split("|")
        yield from _limits(f"QOS {name}", f"qos where name={name}", _OF_QOS, values)


def _association_limits(text: str, cluster: str) -> Iterator[Limit]:
    for line in lines(text):
        account, user, partition, *values = line.split("|")
        if user:
            owner, target = f"user {user} of account {account}", f"user where name={user} account={account}"
        else:
            owner, target = f"account {account}", f"account where name={account}"
        if partition:
            owner, target = f"{owner} in partition {partition}", f"{target} partition={partition}"
        yield from _limits(owner, f"{target} cluster={cluster}", _OF_ASSOCIATION, values)


def _limits(owner: str, target: str, names: Mapping[str, str], values: list[str]) -> Iterator[Limit]:
    for name, text in zip(names.values(), values, strict=False):
        pairs = (item.partition("=") for item in text.split(",") if item)
        tres = {one.lower(): int(count) for one, _, count in pairs if count.isdigit()}
        if tres:
            yield Limit(owner=owner, target=target, name=name, tres=tres)
