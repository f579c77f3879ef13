"""`rad install --edit-slurm` on a Slurm that has never heard of us, while it works; and the way back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from tests.cluster.commands.test_documents import RADS, mounts_apart
from tests.cluster.conftest import jobs_on, started

pytestmark = pytest.mark.cluster

SITE = """\
Prolog={etc}/site.sh # the site's own
TaskProlog={etc}/site_task.sh
Include site.conf
"""
UNITS = (
    "mkdir -p /etc/systemd/system /etc/logrotate.d && mount -t tmpfs none /etc/systemd/system "
    '&& mount -t tmpfs none /etc/logrotate.d && exec "$@"'
)


@pytest.fixture(scope="module")
def bare(place: Place) -> Iterator[Cluster]:
    """A Slurm with GPUs, hooks and a slurm.conf of its own; our files lie there as a package brings them."""
    for cluster in started(place, ClusterSpec(nodes=(NodeSpec(name="n0"),)), name="bare"):
        own = cluster.place
        etc = own.etc
        text = RADS.sub("", own.slurm_conf.read_text())
        text = text.replace("GresTypes=gpu,shard\n", "").replace(",LL_SHARED_GRES", "")
        text = re.sub(r"(?m)^(NodeName.*) (Gres=.*),shard:\d+ ", r"\1 \\\n  \2 \\\n  ", text)
        own.slurm_conf.write_text(text + SITE.format(etc=etc))
        (etc / "site.conf").write_text("GresTypes=gpu # as ever\n")
        gres = etc / "gres.conf"
        gres.write_text(re.sub(r"(?m)^.*Name=shard.*\n", "", gres.read_text()))
        for name, line in (
            ("site.sh", f"echo site >>{own.log}/site"),
            ("site_task.sh", "echo export SITE=1"),
        ):
            (etc / name).write_text(f"#!/bin/bash\n{line}\n")
            (etc / name).chmod(0o755)
        again(cluster)
        yield cluster


@pytest.fixture
def jobs(bare: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    yield from jobs_on(bare, request)


def again(cluster: Cluster) -> None:
    """Start slurmctld and slurmd again, as `systemctl restart` does: jobs run on."""
    for name in ("slurmd-n0", "slurmctld"):
        cluster.daemons.stop(name)
    cluster.start_slurmctld()
    cluster.start_node(NodeSpec(name="n0"))
    cluster.wait_for_nodes()
    cluster.wait("n0 is up", lambda: "drain" not in node_state(cluster) and ready(cluster), 30)


def node_state(cluster: Cluster) -> str:
    return cluster.slurm("sinfo", "-h", "-p", "gpu", "-o", "%T").lower()


def ready(cluster: Cluster) -> bool:
    return any(state in node_state(cluster) for state in ("idle", "mixed", "allocated"))


def rad(cluster: Cluster, command: str, *options: str, mounts: str = "", program: Sequence[str] = ()) -> str:
    """Type a command of rad's as root, where systemd's folders are empty; return its output and status.

    Args:
        cluster: Where.
        command: Of rad's.
        options: Of the command; those of folders count before the cluster's.
        mounts: Shell commands before it that end with `&&`, for mounts that only the command sees.
        program: What is run in place of `rad`.
    """
    place = cluster.place
    where = ("--etc", str(place.etc), "--slurm", str(place.etc))
    argv = (*(program or (f"{place.venv}/bin/rad",)), command, *where, *options)
    shell = ("bash", "-c", '"$@" 2>&1; echo status $?', "_", *argv)
    return cluster.slurm("unshare", *mounts_apart(), "bash", "-c", mounts + UNITS, "_", *shell)


INSTALL = ("--edit-slurm", "--node", "n0", "--gpus", "4", "--gpu-memory-mib", "40330")


def shares(jobs: Jobs) -> bool:
    """Return whether radd lets a job share by now; nothing of the job stays."""
    held = jobs.submit("--hold", "--gpus=1", "--comment=rad:memory=4G", "--wrap", "true")
    jobs.cluster.slurm("scancel", str(held.job_id))
    return "booked 4.0 GiB" in held.messages


def test_jobs_run_on_while_a_site_begins_to_share_and_ends(bare: Cluster, jobs: Jobs) -> None:
    files = ("slurm.conf", "site.conf", "gres.conf", "site.sh", "site_task.sh")
    before = {name: (bare.place.etc / name).read_text() for name in files}
    whole = jobs.accepted(
        "--gres=gpu:1", "--wrap", "echo site=$SITE; while [ ! -e end ]; do sleep 0.1; done; echo end"
    )
    jobs.wait(whole, "RUNNING")
    said = rad(bare, "install", *INSTALL)
    assert said.rstrip().endswith("status 0"), said
    assert "+Prolog=" in said or "/prolog.sh" in said
    again(bare)
    bare.wait("radd has read slurm.conf again", lambda: shares(jobs), 30)
    wrap = ("--wrap", "echo kind=$RAD_KIND gpu=$RAD_GPUS site=$SITE; sleep 2")
    shared = [jobs.accepted("--gpus=1", "--comment=rad:memory=4G", *wrap) for _ in range(2)]
    for job in shared:
        jobs.wait(job, "COMPLETED")
        assert "kind=shared gpu=GPU-" in jobs.output(job) and "site=1" in jobs.output(job)
    (jobs.folder / "end").touch()
    assert jobs.wait(whole)["JobState"] == "COMPLETED" and "end" in jobs.output(whole)
    assert "site" in (bare.place.log / "site").read_text(), "the site's own Prolog ran, too"
    assert "need no change" in rad(bare, "install", *INSTALL)
    rad(bare, "uninstall", "--edit-slurm")
    assert "PrologFlags stay" in rad(bare, "uninstall", "--edit-slurm")  # they go last
    bare.restart_slurmctld()
    rad(bare, "uninstall", "--edit-slurm")
    assert {name: (bare.place.etc / name).read_text() for name in files} == before
    again(bare)
    jobs.wait(jobs.accepted("--gres=gpu:1", "--wrap", "true"), "COMPLETED")
