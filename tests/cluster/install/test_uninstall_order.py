"""Around a `rad uninstall`, with any daemon not restarted yet, jobs start and no node drains."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import NodeSpec
from tests.cluster.conftest import jobs_on
from tests.cluster.install.test_edit_slurm import INSTALL, again, bare, node_state, rad

__all__ = ["bare"]
pytestmark = pytest.mark.cluster
NODE = NodeSpec(name="n0")
SHARED = ("--gpus=1", "--comment=rad:memory=4G")


@pytest.fixture
def jobs(bare: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    """Jobs of a site that has only rad.toml, the key and Lua's settings of us; afterwards all is as before."""
    place = bare.place
    saved = place.root / "saved"
    subprocess.run(["cp", "-a", place.etc, saved], check=True)
    for path in (*place.etc.glob("*log.sh"), *place.etc.glob("*.lua"), *(place.etc / "rad").glob("*.lua")):
        if path.name != "rad_settings.lua":
            path.unlink()
    rads(bare).mkdir()
    shutil.copy(place.etc / "rad.n0.toml", rads(bare) / "rad.toml")
    package(bare).symlink_to(place.venv)
    try:
        yield from jobs_on(bare, request)
    finally:
        for path in (place.etc, rads(bare)):
            shutil.rmtree(path, ignore_errors=True)
        saved.rename(place.etc)
        package(bare).unlink(missing_ok=True)
        restart(bare, "RAD")
        bare.slurm("bash", "-c", "scontrol update nodename=n0 state=resume || true")
        again(bare)


def rads(cluster: Cluster) -> Path:
    """Return what stands for /etc/rad, apart from Slurm's files."""
    return cluster.place.root / "rad"


def package(cluster: Cluster) -> Path:
    """Return what stands for the folder that the package is installed in."""
    return cluster.place.root / "package"


def typed(
    cluster: Cluster, command: str, *options: str, mounts: str = "", program: Sequence[str] = ()
) -> str:
    package_of = ("--prefix", str(package(cluster)), *INSTALL) if command == "install" else ("--edit-slurm",)
    return rad(
        cluster, command, "--etc", str(rads(cluster)), *package_of, *options, mounts=mounts, program=program
    )


def installed(cluster: Cluster, jobs: Jobs) -> None:
    """Install, restart Slurm, and see a job share."""
    said = typed(cluster, "install")
    assert said.rstrip().endswith("status 0"), said
    again(cluster)
    restart(cluster, "RAD")  # radd reads slurm.conf again
    job = jobs.accepted(*SHARED, "--wrap", "echo kind=$RAD_KIND")
    jobs.wait(job, "COMPLETED")
    assert "kind=shared" in jobs.output(job), jobs.output(job)


def restart(cluster: Cluster, name: str) -> None:
    if name == "slurmctld":
        cluster.restart_slurmctld()
    elif name == "slurmd":
        cluster.daemons.stop("slurmd-n0")
        cluster.start_node(NODE)
    else:
        cluster.daemons.stop("monitor-n0")
        cluster.daemons.stop("radd")
        cluster.start_radd()
        cluster.start_monitor(NODE)


def jobs_run(jobs: Jobs) -> None:
    started = [
        jobs.accepted(*gres_options, "--wrap", "srun true")
        for gres_options in (("--gres=gpu:1",), ("--ntasks=1",), SHARED)
    ]
    for job in started:
        jobs.wait(job, "COMPLETED", timeout_s=150)  # the Epilog may be a stub already: reconciled after 45 s
    assert not {"drain", "down", "inval"} & set(node_state(jobs.cluster).replace("*", "").split())


def nothing(cluster: Cluster) -> None:
    """Uninstall as it is."""


def switched_off(cluster: Cluster) -> None:
    for path in (rads(cluster) / "rad.toml", *cluster.place.etc.glob("rad*.toml")):
        path.write_text(re.sub(r"(?m)^mode = .*$", 'mode = "off"', path.read_text()))


def of_a_newer_release(cluster: Cluster) -> None:
    """Go back to a release that does not know all that rad.toml says."""
    for path in (rads(cluster) / "rad.toml", cluster.place.etc / "rad.toml"):
        path.write_text(path.read_text() + "\n[from_a_newer_release]\nkey = 1\n")


def of_an_older_release(cluster: Cluster) -> None:
    """Run with a rad.toml that says little."""
    text = (rads(cluster) / "rad.toml").read_text()
    kept = re.findall(r"(?m)^(?:mode|default_partition) = .*$", text)
    paths = re.search(r"(?m)^\[paths\]\n(?:.+\n)*", text)
    (rads(cluster) / "rad.toml").write_text("\n".join([*kept, "", paths[0] if paths else ""]))


def no_package(cluster: Cluster) -> None:
    package(cluster).unlink()
    for name in ("radd", "monitor-n0"):
        cluster.daemons.stop(name)


def no_folder(cluster: Cluster) -> None:
    shutil.rmtree(rads(cluster))


@pytest.mark.parametrize(
    "before", [nothing, switched_off, of_a_newer_release, of_an_older_release, no_package, no_folder]
)
def test_jobs_run_with_any_daemon_not_restarted_yet(
    bare: Cluster, jobs: Jobs, before: Callable[[Cluster], None]
) -> None:
    def all_is_well() -> None:
        jobs_run(jobs)
        if before not in (no_package, of_a_newer_release):  # where radd could start
            restart(bare, "RAD")
            jobs_run(jobs)

    installed(bare, jobs)
    before(bare)
    all_is_well()
    typed(bare, "uninstall")
    all_is_well()  # nothing was restarted
    restart(bare, "slurmctld")
    all_is_well()
    typed(bare, "uninstall")
    all_is_well()  # slurmd still names the hooks
    restart(bare, "slurmd")
    all_is_well()
    restart(bare, "slurmctld")
    all_is_well()
    hook = rads(bare) / "epilog.sh"
    assert before is no_folder or "python" not in hook.read_text()
    package(bare).exists() or package(bare).symlink_to(bare.place.venv)
    rads(bare).mkdir(exist_ok=True)
    for path in bare.place.etc.glob("rad*.toml"):
        shutil.copy(bare.place.root / "saved" / path.name, path)
    shutil.copy(bare.place.etc / "rad.n0.toml", rads(bare) / "rad.toml")
    restart(bare, "RAD")
    installed(bare, jobs)  # stubs become hooks again


def test_jobs_that_need_shards_are_named_and_keep_them(bare: Cluster, jobs: Jobs) -> None:
    installed(bare, jobs)
    slurm_conf = bare.place.slurm_conf.read_text()
    running = jobs.accepted(*SHARED, "--wrap", "sleep 600")
    jobs.wait(running, "RUNNING")
    later = ("--begin=now+1hour", "--wrap", "true")
    waiting = [jobs.accepted(*SHARED, *later), jobs.accepted(*SHARED, "--array=1-3", *later)]
    without = jobs.accepted("--ntasks=1", *later)
    for options in (["--dry-run"], []):
        said = typed(bare, "uninstall", *options)
        assert said.rstrip().endswith("status 1") and "nothing was changed: jobs that use or wait" in said
        named = re.findall(r"\d+(?:_\[1-3\])?", said.splitlines()[0])
        assert set(named) == {str(running), str(waiting[0]), f"{waiting[1]}_[1-3]"}, (said, without)
    assert bare.place.slurm_conf.read_text() == slurm_conf
    bare.cancel_jobs()
    typed(bare, "uninstall")
    assert not re.search(r"(?m)^[^#]*shard", bare.place.slurm_conf.read_text())
