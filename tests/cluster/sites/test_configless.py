"""A GPU node that has no slurm.conf of its own: slurmctld sends it (slurmd --conf-server)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import ClusterSpec, Place
from slurm_plugin.slurm.node.processes import living_jobs, slurmd_since_s
from tests.cluster.commands.test_documents import mounts_apart
from tests.cluster.conftest import started

pytestmark = pytest.mark.cluster

BARE_MACHINE = """\
mkdir -p /etc/slurm && mount -t tmpfs none /etc/slurm
mount -t tmpfs none /run && mkdir /run/munge && ln -s "$1" /run/munge/munge.socket.2
shift && exec "$@"
"""
"""No file of Slurm's, and munged where a machine has it: the slurm.conf to come names the cluster's own socket."""

TRAIN = """\
#!/bin/bash
#SBATCH --gpus=1
#RAD model=models/resnet50_torchinfo.txt batch_size=8
python3 fake_train.py --memory 2G --seconds {}
"""
GROWS = "python3 fake_train.py --memory 3.8G,30G --seconds 1"


@pytest.fixture(scope="module")
def cluster(place: Place) -> Iterator[Cluster]:
    spec = ClusterSpec(slurm_conf=("SlurmctldParameters=enable_configless",))
    for cluster in started(place, spec, name="configless"):
        for name in ("monitor-n0", "slurmd-n0"):
            cluster.daemons.stop(name)
        own = cluster.place
        config = own.etc / "rad.n0.toml"
        config.write_text(re.sub(r"(?m)^slurm_conf = .*\n", "", config.read_text()))
        port = cluster.slurm("scontrol", "show", "config").split("SlurmctldPort")[1].split()[1]
        slurmd = ("slurmd", "-D", "-N", "n0", "--conf-server", f"127.0.0.1:{port}")
        env = {name: value for name, value in cluster.env().items() if name != "SLURM_CONF"}
        argv = ("unshare", *mounts_apart(), "sh", "-c", BARE_MACHINE, "_", str(own.munge_socket), *slurmd)
        cluster.daemons.start("slurmd-n0", argv, env=env)
        cluster.wait("the node is back", partial(is_idle, cluster), 30)
        monitor = (f"{own.venv}/bin/rad-monitor", "--config", str(config))
        window = own.run / "n0" / "monitor" / "window.json"
        window.unlink(missing_ok=True)
        cluster.daemons.start("monitor-n0", (*inside(cluster), *monitor), env=env)
        cluster.wait(
            "the monitor samples", window.exists, 30
        )  # what starts now would keep radd from the processor
        yield cluster


def inside(cluster: Cluster) -> tuple[str, ...]:
    """Return what starts a program on the node."""
    return ("nsenter", "--target", str(cluster.daemons.pid("slurmd-n0")), "--mount", "--root", "--")


def on_the_node(cluster: Cluster, line: str, user: str = "root") -> str:
    """Type a line on the node, where Slurm's programs find their settings as on any configless machine."""
    shell = ("sh", "-c", f"unset SLURM_CONF; ({line}) 2>&1")
    return cluster.slurm(*inside(cluster), "runuser", "-u", user, "--", *shell)


def is_idle(cluster: Cluster) -> bool:
    """Return whether the node has the slurm.conf that it was sent, and takes jobs."""
    return on_the_node(cluster, "sinfo -h -N -p gpu -o %T || true").strip() == "idle"


def submitted(jobs: Jobs, script: str) -> tuple[str, int]:
    """Submit a script on the node, as a user, and return the answer and the job's id."""
    (jobs.folder / "job.sh").write_text(script)
    said = on_the_node(jobs.cluster, f"cd {jobs.folder} && sbatch job.sh", "nobody")
    return said, int(said.split()[-1])


def test_users_are_informed_where_the_model_is_not_read_and_share_where_it_is(jobs: Jobs) -> None:
    said, job = submitted(jobs, TRAIN.format(0))
    assert "job.sh:3: no model summary was read, so the GPU memory need is unknown" in said
    assert jobs.wait(job)["JobState"] == "COMPLETED", jobs.output(job)
    on_the_node(jobs.cluster, f"mkdir /etc/slurm/rad && cp {jobs.cluster.place.etc}/rad/*.lua /etc/slurm/rad")
    said, job = submitted(jobs, TRAIN.format(600))
    assert re.search(r"RAD: estimated [\d.]+ GiB; booked 3.0 GiB", said)
    jobs.wait(job, "RUNNING")
    jobs.cluster.wait("it trains", lambda: "training on 1 GPU(s)" in jobs.output(job), 20)
    (allocation,) = jobs.cluster.allocations("n0")
    assert (allocation["job_id"], allocation["kind"]) == (job, "shared")
    facts = json.loads((jobs.cluster.place.run / "n0" / "node.json").read_text())
    assert job in living_jobs(slurm_conf=facts["slurm_conf"])
    assert slurmd_since_s("n0", slurm_conf=facts["slurm_conf"]) is not None
    jobs.cluster.cancel_jobs()


def test_the_epilog_reaches_slurm(jobs: Jobs) -> None:
    job = jobs.accepted("--gpus=1", "--comment=rad:memory=4G", "--wrap", GROWS)
    jobs.cluster.wait("it is requeued", lambda: jobs.restarts(job) == 1, 30)


def test_doctor_reads_what_was_sent_and_says_what_was_not(cluster: Cluster) -> None:
    config = cluster.place.etc / "rad.n0.toml"
    doctor = f"{cluster.place.venv}/bin/rad doctor --config {config} || true"
    assert "FAIL" not in (said := on_the_node(cluster, doctor)), said
    assert "/run/slurm/conf/slurm.conf was read" in said and "4 entries with shards" in said
    assert "on the controller, where the originals are" in said  # where its fixes belong
    said = on_the_node(
        cluster, f"mv /etc/slurm/rad /etc/slurm/away && {doctor}; mv /etc/slurm/away /etc/slurm/rad"
    )
    assert "/etc/slurm/rad (slurmctld sends no folders)" in said
