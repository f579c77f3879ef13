"""Clusters that cannot share GPUs, or not through us: `rad doctor` says so, the component concerned says so once, and
every job runs as Slurm alone would run it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.files import rewrite
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.core.errors import CommandError
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.files.installed import PLUGIN_FOLDERS
from slurm_plugin.slurm.versions import traits
from tests.cluster.conftest import started

pytestmark = pytest.mark.cluster

NODE = NodeSpec(name="n0")
TRAIN = "python3 fake_train.py --memory 1G --seconds 0.2"
REQUEST = ("--gres=gpu:1", "--comment=rad:memory=4G")
Edit = Callable[[str], str]

SITES = """\
-- A site's own script, as many have one: it sets a default, and refuses what it does not like.
function slurm_job_submit(job_desc, part_list, submit_uid)
  if job_desc.time_limit == nil or job_desc.time_limit > 100000 then job_desc.time_limit = 7 end
  if job_desc.name == "forbidden" then slurm.log_user("%s", "the site says no") return slurm.ERROR end
  return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""


@pytest.fixture(scope="module")
def cluster(place: Place) -> Iterator[Cluster]:
    yield from started(place, ClusterSpec(nodes=(NODE,)), name="wrong")


@contextmanager
def changed(cluster: Cluster, edits: dict[str, Edit]) -> Iterator[None]:
    """Run the cluster with other files next to slurm.conf; at the end all is as before."""
    before = {name: (cluster.place.etc / name).read_text() for name in edits}
    try:
        restart(cluster, {name: edit(before[name]) for name, edit in edits.items()})
        yield
    finally:
        restart(cluster, before)


def restart(cluster: Cluster, files: dict[str, str]) -> None:
    """Start Slurm with other files, and without memory of jobs (-c).

    slurmctld 24.11.5 dies of a segmentation fault when it recovers jobs that ran while GresTypes had shard and
    their node had none, and the node has shards by then.
    """
    for name in ("slurmctld", "slurmd-n0", "radd"):  # radd reads a changed slurm.conf while it runs
        cluster.daemons.stop(name)
    for name, text in files.items():
        (cluster.place.etc / name).write_text(text)
    (cluster.place.log / "radd.out").write_text("")
    cluster.restart_radd()
    argv = ["slurmctld", "-D", "-c", "-f", str(cluster.place.slurm_conf)]
    cluster.daemons.start("slurmctld", argv, env=cluster.env())
    cluster.start_node(NODE)
    cluster.wait("the node is idle", lambda: idle(cluster), 40)


def idle(cluster: Cluster) -> bool:
    try:
        return cluster.slurm("sinfo", "-h", "-N", "-p", "gpu", "-o", "%T").strip() == "idle"
    except CommandError:
        return False


def troubles(cluster: Cluster) -> list[str]:
    """Return what `rad doctor` finds to fix, a line each."""
    try:
        config = str(cluster.place.etc / "rad.n0.toml")
        text = cluster.slurm(f"{cluster.place.venv}/bin/rad", "doctor", "--config", config, "--json")
    except CommandError as exc:
        text = exc.output
    levels = ("fail", "warn")
    return [
        f"{each['subject']}: {each['text']}"
        for each in json.loads(text)["findings"]
        if each["level"] in levels
    ]


def lines_with(path: Path, words: str) -> list[str]:
    return [line for line in path.read_text().splitlines() if words in line]


def runs_as_typed(jobs: Jobs) -> bool:
    """Submit in each way and return whether Slurm saw just what was typed and the job ran."""
    batch = jobs.accepted(*REQUEST, "--wrap", TRAIN)
    done = jobs.wait(batch)
    assert done["JobState"] == "COMPLETED", jobs.output(batch)
    shell = f"cd '{jobs.folder}' && srun {' '.join(REQUEST)} {TRAIN}"
    text = jobs.cluster.slurm("runuser", "-u", "nobody", "--", "sh", "-c", f"{shell} 2>&1", timeout_s=40)
    assert "phase 1 of 1 done" in text, text
    return "shard" not in done["TresPerNode"] and "rad2:" not in done.get("Comment", "")


def test_a_right_site_has_nothing_to_fix_and_its_jobs_get_shards(jobs: Jobs, cluster: Cluster) -> None:
    assert not runs_as_typed(jobs)
    assert not [line for line in troubles(cluster) if "slurm.conf" in line or "job_submit" in line]


def test_without_shards_in_slurm(jobs: Jobs, cluster: Cluster) -> None:
    edits: dict[str, Edit] = {
        "slurm.conf": lambda text: text.replace("GresTypes=gpu,shard", "GresTypes=gpu").replace(
            ",shard:156", ""
        ),
        "gres.conf": lambda text: "".join(li for li in text.splitlines(True) if "Name=shard" not in li),
    }
    assert ",shard:156" in cluster.place.slurm_conf.read_text()
    with changed(cluster, edits):
        assert runs_as_typed(jobs)
        assert len([line for line in troubles(cluster) if "GresTypes lacks shard" in line]) == 1
        assert len([line for line in troubles(cluster) if "radd: as it found when it started" in line]) == 1
        assert len(lines_with(cluster.place.log / "radd.out", "GresTypes has no shard")) == 1
    assert not runs_as_typed(jobs)


def test_without_shards_on_the_nodes(jobs: Jobs, cluster: Cluster) -> None:
    edits: dict[str, Edit] = {
        "slurm.conf": lambda text: text.replace(",shard:156", ""),
        "gres.conf": lambda text: "".join(li for li in text.splitlines(True) if "Name=shard" not in li),
    }
    with changed(cluster, edits):
        assert runs_as_typed(jobs)
        assert len([line for line in troubles(cluster) if "no shared job can start there" in line]) == 1
        assert len(lines_with(cluster.place.log / "radd.out", "no NodeName line has shards")) == 1
    assert not runs_as_typed(jobs)


def test_without_lua_among_slurms_plugins(jobs: Jobs, cluster: Cluster) -> None:
    edits: dict[str, Edit] = {
        "slurm.conf": lambda text: text.replace("JobSubmitPlugins=lua\n", "").replace(
            "CliFilterPlugins=lua\n", ""
        )
    }
    with changed(cluster, edits):
        assert runs_as_typed(jobs)
        assert len([line for line in troubles(cluster) if "without JobSubmitPlugins=lua" in line]) == 1
        assert len(lines_with(cluster.place.log / "radd.out", "JobSubmitPlugins has no lua")) == 1


def test_without_the_lua_plugin_itself(cluster: Cluster) -> None:
    """Slurm then refuses to start at all, in words of its own; `rad doctor` explains."""
    folder = cluster.place.root / "plugins"
    folder.mkdir()
    for plugin in installed_plugins():
        if not plugin.stem.endswith("_lua"):
            (folder / plugin.name).symlink_to(plugin)
    conf = cluster.place.slurm_conf
    before = conf.read_text()
    cluster.daemons.stop("slurmctld")
    try:
        conf.write_text(f"PluginDir={folder}\n{before}")
        assert [line for line in troubles(cluster) if "no job_submit_lua.so" in line]
        cluster.daemons.start("slurmctld", ["slurmctld", "-D", "-f", str(conf)], env=cluster.env())
        cluster.wait("slurmctld gives up", lambda: cluster.daemons.pid("slurmctld") is None, 20)
        assert lines_with(cluster.place.log / "slurmctld.log", "job_submit/lua")
    finally:
        restart(cluster, {"slurm.conf": before})


def installed_plugins() -> list[Path]:
    folders = [Path(folder) for folder in PLUGIN_FOLDERS if Path(folder).is_dir()]
    return [plugin for folder in folders for plugin in folder.glob("*.so")]


def test_without_lua_sockets(jobs: Jobs, cluster: Cluster) -> None:
    """Stand-ins that cannot be loaded lie where Lua looks first."""
    folder = cluster.place.etc / "rad"
    for name in ("socket.lua", "posix.lua"):
        (folder / name).write_text('error("not installed")\n')
    (folder / "posix").mkdir()
    for name in ("sys/socket.lua", "unistd.lua", "time.lua"):
        (folder / "posix" / name).parent.mkdir(exist_ok=True)
        (folder / "posix" / name).write_text('error("not installed")\n')
    cluster.reset_breaker()
    log = cluster.place.log / "slurmctld.log"
    try:
        before = len(lines_with(log, "neither luasocket nor lua-posix"))
        batch = jobs.accepted(*REQUEST, "--wrap", TRAIN)
        done = jobs.wait(batch)
        # A whole GPU all the same: as all its shards, by the shim alone, where a rerun could not have gpu:1.
        version = SlurmCommands(slurm_conf=str(cluster.place.slurm_conf), timeout_s=10).version()
        whole = "gpu:1" if traits(version).gpu_after_requeue else "shard:39"
        assert (done["JobState"], done["TresPerNode"][5:]) == ("COMPLETED", whole)
        assert len(lines_with(log, "neither luasocket nor lua-posix")) == before + 1
    finally:
        for name in ("socket.lua", "posix.lua"):
            (folder / name).unlink()
        shutil.rmtree(folder / "posix")
        cluster.reset_breaker()
    assert not runs_as_typed(jobs)


@contextmanager
def script(cluster: Cluster, text: str) -> Iterator[None]:
    """Put a site's own job_submit.lua in the place of RAD's."""
    path = cluster.place.etc / "job_submit.lua"
    before = path.read_text()
    rewrite(path, text)
    cluster.reset_breaker()
    try:
        yield
    finally:
        rewrite(path, before)
        cluster.reset_breaker()


def site_policy_holds(jobs: Jobs) -> bool:
    refused = jobs.submit("--job-name=forbidden", *REQUEST, "--wrap", "true")
    held_job = jobs.accepted("--hold", *REQUEST, "--wrap", "true")
    said = "the site says no" in refused.messages
    return said and refused.job_id is None and jobs.fields(held_job)["TimeLimit"] == "00:07:00"


def test_a_script_of_the_sites_own_goes_on_alone_until_it_calls_rad(jobs: Jobs, cluster: Cluster) -> None:
    with script(cluster, SITES):
        assert site_policy_holds(jobs)
        batch = jobs.submit("--hold", *REQUEST, "--wrap", "true")
        assert batch.job_id is not None and "shard" not in jobs.fields(batch.job_id)["TresPerNode"]
        assert len([line for line in troubles(cluster) if "does not call RAD" in line]) == 1


def test_a_script_of_the_sites_own_calls_rad_as_the_manual_says(jobs: Jobs, cluster: Cluster) -> None:
    manual = (Path(__file__).resolve().parents[3] / "docs" / "admin" / "install.md").read_text()
    (call,) = [block for block in manual.split("```lua\n")[1:] if "job_submit" in block]
    lines = call.partition("```")[0].replace("/etc/slurm", str(cluster.place.etc))
    foreign = SITES.replace("function slurm_job_submit", "local function site_submit").replace(
        "function slurm_job_modify", "local function site_modify"
    )
    with script(cluster, foreign.rpartition("return")[0] + lines):
        assert site_policy_holds(jobs)
        batch = jobs.accepted(*REQUEST, "--wrap", TRAIN)
        done = jobs.wait(batch)
        assert done["JobState"] == "COMPLETED" and "shard:4" in done["TresPerNode"]
        assert done["TimeLimit"] == "00:07:00"
        assert not [line for line in troubles(cluster) if "does not call RAD" in line]
