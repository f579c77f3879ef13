"""The clusters that are compared: one machine space, with RAD and without, and what differs between variants of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from comparison.runs import Target

from lab.cluster import Cluster
from lab.config import STAND_IN_LUA
from lab.files import rewrite
from lab.place import PATIENT_S, ClusterSpec, NodeSpec, Place
from slurm_plugin.core.errors import CommandError

USER = "games"

_LAYOUT = "Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2 Feature=fast"
_GPU_MIB = (40960,) * 12
_NODES = tuple(
    NodeSpec(name=name, gpu_mib=_GPU_MIB, cpus=64, memory_mib=64000, line=_LAYOUT) for name in ("n0", "n1")
)
_SLURM_CONF = ("Licenses=matlab:50", "FirstJobId=700001", "UnkillableStepTimeout=600")
_PLAIN = ClusterSpec(nodes=_NODES, slurm_conf=_SLURM_CONF, answer_s=PATIENT_S)

SITE_LUA = """
local rad_submit = slurm_job_submit
local function names_a_gpu(job)
  for _, field in ipairs({"tres_per_job", "tres_per_node", "tres_per_task", "tres_per_socket"}) do
    if string.find(job[field] or "", "gpu", 1, true) then return true end
  end
  return false
end
function slurm_job_submit(job, partitions, uid)
  if (job.partition or "gpu") == "gpu" and not names_a_gpu(job) then
    slurm.log_user("%s", "this site: a job of the partition gpu asks for a GPU")
    return slurm.ERROR
  end
  return rad_submit(job, partitions, uid)
end
return slurm.SUCCESS
"""
"""What a site may have in its job_submit.lua next to RAD's three lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One kind of site.

    Attributes:
        name: Its name in files and tables.
        spec: Its cluster with RAD.
        lua: What is added to its job_submit.lua, with RAD and without.
        plugins: Its JobSubmitPlugins with RAD; without, what is left of them.
        mode: RAD's `mode`.
        hetjobs: Whether its Slurm starts heterogeneous jobs.
    """

    name: str
    spec: ClusterSpec = _PLAIN
    lua: str = ""
    plugins: str = "lua"
    mode: str = "enforce"
    hetjobs: bool = True


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant(name="rad"),
        Variant(name="accounts", spec=replace(_PLAIN, accounts=True)),
        Variant(name="off", mode="off"),
        Variant(name="observe", mode="observe"),
        Variant(name="site-lua", lua=SITE_LUA),
        # 22.05 alone never starts heterogeneous jobs of several partitions, nor what waits behind them.
        Variant(name="all-partitions", plugins="lua,all_partitions", hetjobs=False),
    )
}


@contextmanager
def running(variant: Variant, place: Place, *, rad: bool) -> Iterator[Target]:
    """Start a variant's cluster, with RAD or without, and stop it at the end.

    Args:
        variant: The kind of site.
        place: Where the cluster lies.
        rad: Whether RAD is part of it.
    """
    cluster = Cluster(place)
    site = [] if rad else _site_alone(variant)
    spec = replace(variant.spec, with_rad=rad, slurm_conf=(*variant.spec.slurm_conf, *site))
    try:
        cluster.up(spec)
        _change(cluster, variant, rad=rad)
        course = ("reservation", "ReservationName=course", "StartTime=now", "Duration=600", f"Users={USER}")
        cluster.slurm("scontrol", "create", *course, "Nodes=n1", "CoreCnt=8")
        yield Target(env=cluster.env(), work=place.root / "work", user=USER)
    finally:
        cluster.down()


def _site_alone(variant: Variant) -> list[str]:
    plugins = [name for name in variant.plugins.split(",") if name != "lua" or variant.lua]
    return [f"JobSubmitPlugins={','.join(plugins)}"] if plugins else []


def _change(cluster: Cluster, variant: Variant, *, rad: bool) -> None:
    """Make a cluster that runs already what the variant is, and let slurmctld and radd read it."""
    script = cluster.place.etc / "job_submit.lua"
    if variant.lua:
        before = script.read_text() if rad else STAND_IN_LUA[script.name]
        rewrite(script, before.removesuffix("return slurm.SUCCESS\n") + variant.lua)
        cluster.reset_breaker()
        cluster.wait("the site's job_submit.lua refuses", lambda: _is_refused(cluster), 20)
    if rad and variant.plugins != "lua":
        text = cluster.place.slurm_conf.read_text()
        rewrite(
            cluster.place.slurm_conf,
            text.replace("JobSubmitPlugins=lua", f"JobSubmitPlugins={variant.plugins}"),
        )
        cluster.restart_slurmctld()
        cluster.wait("the nodes are back", lambda: _are_idle(cluster), 30)
    if rad and variant.mode != "enforce":
        cluster.set_rad("mode", f'"{variant.mode}"')


def _are_idle(cluster: Cluster) -> bool:
    try:
        states = cluster.slurm("sinfo", "-h", "-N", "-o", "%T").split()
    except CommandError:
        return False
    return bool(states) and set(states) == {"idle"}


def _is_refused(cluster: Cluster) -> bool:
    """Return whether a job without a GPU is refused, as SITE_LUA does; a script that is wrong is passed over."""
    try:
        cluster.slurm("sbatch", "--partition=gpu", "--output=/dev/null", "--wrap=true", user=USER)
    except CommandError as exc:
        return "this site" in exc.output
    return False


def new_place(home: Path, name: str) -> Place:
    """Return the place of one cluster under the checkout's own folder."""
    return Place(
        root=home / name / "lab", venv=home / "venv"
    )  # Slurm names the cluster after the last folder
