"""The table of differences between Slurm versions that concern RAD.

Differences that the code depends on:

| difference | 22.05 | 23.02 | 23.11.5 on | 25.11 on | 26.05 |
|---|---|---|---|---|---|
| prefix of TresPerNode in `scontrol update` | gres: | gres: | gres/ | gres/ | gres/ |
| a requeued shard job may request gpu:1 | shown, not done | not tried | yes | yes | yes |
| Slurm itself keeps gpu and shard apart on a GPU without type or cores | no | no | yes | yes | yes |
| `SelectTypeParameters=LL_SHARED_GRES` | no | no | yes | yes | yes |
| lines of `Prolog=` and `Epilog=` that count, of several | last | not tried | all (24.11) | all | all |
| starts planned for whole GPUs count shards in use, and vice versa | yes | not tried | no (24.11) | not tried | yes |
| `MULTIPLE_SHARING_GRES_PJ`: shards of one job on several GPUs, one task's on one | no | no | yes | yes | yes |
| shards start in a reservation of GPUs (whole nodes: all) | has none | not tried | yes (24.11) | not tried | no |
| a requeued job gets a new Prolog only after | cred_expire | at once | at once | at once | at once |
| a restarted slurmctld refuses shards until its first node has come | yes | not tried | no | no | no |
| `SelectType` where slurm.conf has none (from 23.11) | linear | linear | cons_tres | cons_tres | cons_tres |
| credential revoked: a job back within a second of its last run's end fails; it waits | 3 s | 3 s | 3 s | 3 s | 3 s |

Differences that the code avoids depending on:

| difference | 22.05 | 23.02 | 23.11.5 on | 25.11 on | 26.05 |
|---|---|---|---|---|---|
| a Lua runtime error refuses the job | no | no | no | not tried | yes |
| SLURM_JOB_STDOUT in hooks when the user gave no -o | no | no | no | not tried | yes |
| SLURM_JOB_EXTRA in hooks | no | yes | yes | yes | yes |
| `--json` of squeue, sinfo and scontrol is complete and stable | no | no | yes | yes | yes |
| `SchedulerParameters=requeue_delay` | no | no | no | yes | yes |
| MaxBatchRequeue holds a job that Slurm requeued this often (`scontrol` does not count) | no | 5 | 5 | 5 | 5 |

Each row is tested on a running Slurm by tests/cluster/slurm/test_version_table.py, the third by test_confined.py, that
of a restarted slurmctld by test_controller_restarts.py, that of backfill's plans by test_plans.py. Source:
release notes and source at the release tags; 22.05.8, 24.11.5 and 26.05.5 were tested. "not tried" counts as the older
behaviour.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpumemnet.records import frozen
from slurm_plugin.core.booking.gres_text import count_of, parse_gres
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.errors import SlurmError

Version = tuple[int, int, int]

OLDEST: Version = (22, 5, 0)
NEWEST: Version = (26, 5, 99)


def parse_version(text: str) -> Version:
    """Return the version that `scontrol --version` prints.

    Raises:
        SlurmError: There is none in the text.

    >>> parse_version("slurm-wlm 22.05.8")
    (22, 5, 8)
    """
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    if match is None:
        raise SlurmError(f"no Slurm version in {text[:80]!r}")
    major, minor, micro = match.groups()
    return int(major), int(minor), int(micro)


@frozen
class Traits:
    """How one version behaves.

    Attributes:
        gres_prefix: Prefix of a GRES in `scontrol update TresPerNode=`.
        gpu_after_requeue: A requeued shard job really gets the gpu:1 that it was changed to.
        keeps_gpu_and_shard_apart: Slurm never allocates a GPU with shards in use as a whole. If it is False, GPUs with
            a type in gres.conf and slurm.conf are kept apart until a job that shares them ends.
        plans_by_kind: The start of a job that waits for whole GPUs is planned as if no shards were in use, that of one
            that waits for shards as if no job had whole GPUs: for now, and until it starts no other job starts on that
            node.
        spreads_shards: LL_SHARED_GRES exists.
        reserves_shards: In a reservation of GPUs or shards a job that requests shards starts.
        forgets_shards: A restarted slurmctld refuses requests for shards until its first node has registered.
        joins_hooks: Of several lines of Prolog= or Epilog= all count; otherwise the last.
        select_type: SelectType where slurm.conf has none (DEFAULT_SELECT_TYPE in src/common/read_config.h).
    """

    gres_prefix: str
    gpu_after_requeue: bool
    keeps_gpu_and_shard_apart: bool
    plans_by_kind: bool
    spreads_shards: bool
    reserves_shards: bool
    forgets_shards: bool
    joins_hooks: bool
    select_type: str


def traits(version: Version) -> Traits:
    """Return how a version behaves; a version outside the table counts as the nearest one in it."""
    since_23_11 = version >= (23, 11, 0)
    fixed_23_11 = version >= (23, 11, 5)
    return Traits(
        gres_prefix="gres/" if since_23_11 else "gres:",
        gpu_after_requeue=fixed_23_11,
        keeps_gpu_and_shard_apart=fixed_23_11,
        plans_by_kind=fixed_23_11 and version < (26, 5, 0),
        spreads_shards=since_23_11,
        reserves_shards=version < (26, 5, 0),
        forgets_shards=not since_23_11,
        joins_hooks=version >= (24, 11, 0),
        select_type="select/cons_tres" if since_23_11 else "select/linear",
    )


AFTER_REVOCATION_S = 3
"""Into the next second, with margin for a node's clock that differs by one and for the controller's repeated kill."""


def requeue_delay_s(version: Version, auth_info: str) -> int:
    """Return the minimum wait of a requeued job, so that its node runs a Prolog for it again.

    slurmd 22.05 runs a job's Prolog if it does not know the job id, and forgets an id cred_expire seconds after the
    job's end. The id of a job that is back earlier should be forgotten at once, but is not if any was forgotten within
    the last two seconds (src/common/slurm_cred.c, _clear_expired_job_states): on a busy node it starts without Prolog.

    On every version, a job that is back within the second in which its last run was ended is refused by its node
    ("Job credential revoked") and fails: revocation and the new credential are compared in whole seconds. Seen on
    24.11.5.

    Args:
        version: The running version.
        auth_info: AuthInfo of slurm.conf, which has cred_expire if it is not Slurm's default of 120.

    >>> requeue_delay_s((22, 5, 8), "(null)"), requeue_delay_s((22, 5, 8), "socket=/s,cred_expire=15")
    (123, 18)
    >>> requeue_delay_s((24, 11, 5), "(null)")
    3
    """
    if version >= (23, 2, 0):
        return AFTER_REVOCATION_S
    match = re.search(r"\bcred_expire=(\d+)", auth_info)
    return (int(match[1]) if match else 120) + AFTER_REVOCATION_S


def release_of(version: Version) -> str:
    """Return a version's release as Slurm names it.

    >>> release_of((22, 5, 8))
    '22.05'
    """
    return f"{version[0]}.{version[1]:02d}"


def written(version: Version) -> str:
    """Return a version as Slurm writes it.

    >>> written((22, 5, 8))
    '22.05.8'
    """
    return f"{release_of(version)}.{version[2]}"


def release(text: str) -> Version:
    """Return the version that a user names; for a release its last version.

    Raises:
        ValueError: The table does not cover it.

    >>> release("22.05.8"), release("24.11")
    ((22, 5, 8), (24, 11, 99))
    """
    match = re.fullmatch(r"(\d\d)\.(\d\d)(?:\.(\d+))?", text)
    version = (int(match[1]), int(match[2]), int(match[3] or 99)) if match else (0, 0, 0)
    if not known(version):
        raise ValueError(
            f"{text!r} is no Slurm from {release_of(OLDEST)} to {release_of(NEWEST)}, such as 24.11"
        )
    return version


def known(version: Version) -> bool:
    """Return whether the table covers a version."""
    return OLDEST <= version <= NEWEST


DEFAULT_PARAMETERS = "CR_Core_Memory"
"""SelectTypeParameters of cons_tres where slurm.conf has none (logged by slurmctld 22.05.8 at its start)."""

SPREADING = "MULTIPLE_SHARING_GRES_PJ"
"""Value of SelectTypeParameters (slurm.conf(5)). Shards requested by node may be split then, those of a task never."""


def max_shard_gpus_of(version: Version, select_parameters: str, node_gres: Sequence[str]) -> int:
    """Return on how many GPUs of one node the shards of one job may lie; 0 where Slurm keeps them on one GPU.

    Args:
        version: Version of Slurm here.
        select_parameters: SelectTypeParameters of slurm.conf.
        node_gres: `Gres=` of its nodes. The smallest of those with shards gives the number of GPUs that any node has.

    >>> max_shard_gpus_of((24, 11, 5), "CR_Core,MULTIPLE_SHARING_GRES_PJ", ["gpu:a100:4,shard:160", "gpu:8,shard:64"])
    4
    >>> max_shard_gpus_of((24, 11, 5), "CR_Core", ["gpu:2,shard:78"]), max_shard_gpus_of((22, 5, 8), SPREADING, [])
    (0, 0)
    """
    words = {word.strip().upper() for word in select_parameters.split(",")}
    if version < (23, 11, 0) or SPREADING not in words:
        return 0
    nodes = [items for items in map(parse_gres, node_gres) if count_of(items, "shard")]
    return max(1, min((count_of(items, "gpu") for items in nodes), default=1))


def whole_as_gpu(settings: PartitionConfig, version: Version) -> bool:
    """Return whether a whole GPU is requested as gpu:1, where that is exclusive, and not as all of its shards.

    Args:
        settings: The partition's settings.
        version: Version of Slurm here.
    """
    form = settings.exclusive_form
    return form == "gpu" or (form == "auto" and traits(version).gpu_after_requeue)
