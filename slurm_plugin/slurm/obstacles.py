"""Find obstacles that prevent a whole cluster from sharing GPUs: one line for each, as radd logs it.

`rad doctor` reports the same, with the fix; the purpose here is that no job is harmed until an admin reads that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpumemnet.records import frozen
from slurm_plugin.slurm.files.conf_files import chosen_after_lua, lacks, why_no_shards
from slurm_plugin.slurm.versions import NEWEST, OLDEST, Version, known, release_of


@frozen
class Obstacle:
    """One obstacle.

    Attributes:
        text: A line for the log.
        leave_jobs: Whether every job must pass through unchanged: Slurm would refuse RAD's requests.
    """

    text: str
    leave_jobs: bool


def obstacles(
    version: Version,
    settings: Mapping[str, str],
    node_gres: Sequence[str] = (),
    types: Sequence[str] = (),
) -> tuple[Obstacle, ...]:
    """Return the obstacles.

    Args:
        version: The running version.
        settings: slurm.conf, names in lower case; empty if it cannot be read, which is no obstacle.
        node_gres: `Gres=` of its NodeName lines, in lower case.
        types: Types of GPUs that rad.toml has tables for.
    """
    found = []
    shown, oldest, newest = map(release_of, (version, OLDEST, NEWEST))
    if version < OLDEST:
        text = f"Slurm {shown} is older than {oldest}, the first with shards: jobs are submitted unchanged"
        found.append(Obstacle(text=text, leave_jobs=True))
    elif not known(version):
        text = f"Slurm {shown} is newer than {newest}, the newest that was tried, and is treated as that"
        found.append(Obstacle(text=text, leave_jobs=False))
    if (reason := why_no_shards(settings, node_gres)) is not None:
        found.append(Obstacle(text=f"slurm.conf: {reason}: jobs are submitted unchanged", leave_jobs=True))
    for kind in types:
        if node_gres and not any(f"shard:{kind.lower()}:" in gres for gres in node_gres):
            # Slurm allocates shard:h200:5 anyway, and then refuses the job's own srun (22.05.8 and 24.11.5).
            text = (
                f"slurm.conf: no NodeName line has shard:{kind} in its Gres, as rad.toml's gpus.{kind} needs"
            )
            found.append(Obstacle(text=f"{text}: jobs are submitted unchanged", leave_jobs=True))
    if lacks(settings, "JobSubmitPlugins", "lua"):
        text = "slurm.conf: JobSubmitPlugins has no lua: no submission reaches radd"
        found.append(Obstacle(text=text, leave_jobs=False))
    if plugin := chosen_after_lua(settings):
        text = f"slurm.conf: JobSubmitPlugins has {plugin} after lua: jobs without a partition are submitted unchanged"
        found.append(Obstacle(text=f"{text}; write {plugin},lua to share their GPUs", leave_jobs=False))
    return tuple(found)
