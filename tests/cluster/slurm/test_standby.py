"""A standby slurmctld takes over: nothing is lost, submissions go on, and `rad doctor` says how it stands."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.config import NEW_CLUSTER
from lab.files import is_user
from lab.jobs import Jobs, SubmitResult
from lab.place import ClusterSpec, NodeSpec, Place
from lab.power import without_power
from slurm_plugin.core.errors import CommandError, SlurmError
from slurm_plugin.radd.requeued.release import POLL_IDLE_S
from slurm_plugin.radd.submission.standby import UNSURE_S
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.control import JobView
from slurm_plugin.slurm.files.conf_files import settings_of
from slurm_plugin.slurm.files.installed import installed_version
from slurm_plugin.slurm.versions import traits
from tests.cluster.conftest import jobs_on, started
from tests.cluster.recovery.test_boosting import fill_gpus, underestimated

pytestmark = pytest.mark.cluster

STANDBY = "standby"
SECOND = "slurmctld-standby"
LINES = (
    f"SlurmctldHost={STANDBY}(127.0.0.2)",
    "CommunicationParameters=NoCtldInAddrAny",
    "SlurmctldTimeout=5",
)
OUTGROWS = "python3 fake_train.py --memory 3.8G,8G --seconds 1"
ENDS_ITSELF = "fatal: Two slurmctld daemons are running as primary."
"""24.11.5: the first starts to save its state while the standby, which hands back for 29 s, saves it once more."""
SAID = "--comment=rad:memory=4G"
SAVED_S = 40.0
"""Slurm writes down what changed seconds later."""


@pytest.fixture(scope="module", params=["shard:h200:N", "shard:N"])
def pair(place: Place, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Two controllers of one machine: the second runs where the machine has another name and another radd."""
    named = request.param == "shard:h200:N"
    if not named and not forgets_shards():
        pytest.skip("Slurm sets the nodes to INVAL until the admin names the type")
    spec = ClusterSpec(nodes=(NodeSpec(name="n0", gpu_type="h200" if named else ""),), slurm_conf=LINES)
    for cluster in started(place, spec, name=f"pair-{named:d}"):
        settings = cluster.place.etc / "rad" / "rad_settings.lua"
        settings.write_text(settings.read_text().replace(NEW_CLUSTER, ""))
        start_standby(cluster)
        yield cluster


def start_standby(cluster: Cluster) -> None:
    """Start a slurmctld and a radd with files of their own, as on another host."""
    place, conf = cluster.place, cluster.place.slurm_conf
    own, etc = folder_of(cluster), place.etc
    shutil.copytree(etc / "rad", own / "lua")
    changed = ((place.run / "radd.sock", own / "radd.sock"),)  # paths.state is one folder, which both mount
    for path, copy in (
        (etc / "rad.toml", own / "rad.toml"),
        (etc / "rad" / "rad_settings.lua", own / "lua" / "rad_settings.lua"),
        (conf, own / "slurm.conf"),
    ):
        text = (
            path.read_text()
            .replace("slurmctld.own.pid", "standby.own.pid")
            .replace("slurmctld.log", "standby.log")
        )
        for old, new in changed:
            text = text.replace(str(old), str(new))
        copy.write_text(text)
    (own / "hosts").write_text(f"{Path('/etc/hosts').read_text()}\n127.0.0.2 {STANDBY}\n")
    user = "slurm" if is_user("slurm") else "root"
    shutil.chown(own, user)
    radd = [f"{place.venv}/bin/radd", "--config", str(own / "rad.toml")]
    cluster.daemons.start("radd-standby", radd, env=cluster.env(), user=user)
    cluster.wait("its radd listens", (own / "radd.sock").is_socket, 20)
    start_second(cluster)


def folder_of(cluster: Cluster) -> Path:
    """Return what the standby has of its own."""
    return cluster.place.root / "standby"


def start_second(cluster: Cluster) -> None:
    """Start a slurmctld that sees the host name and the files of the standby."""
    own, etc, conf = folder_of(cluster), cluster.place.etc, cluster.place.slurm_conf
    seen = {"hosts": "/etc/hosts", "slurm.conf": conf, "lua": etc / "rad"}
    mounts = (f"mount --bind {own / name} {path}" for name, path in seen.items())
    alone = "{ mount --make-rprivate / 2>/dev/null || true; }"  # in a chroot, whose root is no mount, nothing is shared
    steps = (f"hostname {STANDBY}", alone, *mounts, f"exec slurmctld -D -f {conf}")
    argv = ["unshare", "--uts", "--mount", "--propagation", "unchanged", "sh", "-c", " && ".join(steps)]
    cluster.daemons.start(SECOND, argv, env=cluster.env())


def port_of(cluster: Cluster) -> int:
    return int(settings_of(cluster.place.slurm_conf)["slurmctldport"])


def second_stands_by(cluster: Cluster) -> None:
    """Start a standby that ended itself when it handed back, as its admin does, and wait until it answers."""
    if cluster.daemons.pid(SECOND) is None:
        assert ENDS_ITSELF in (cluster.place.log / "standby.log").read_text()
        start_second(cluster)
    cluster.wait(
        "the standby answers", lambda: f"at {STANDBY} is UP" in cluster.slurm("scontrol", "ping"), 30
    )


def let_look(jobs: Jobs) -> None:
    """Make 22.05's standby look at its queue: it does when something happens there, not when a begin time passes."""
    jobs.cluster.clock.sleep(1)
    jobs.submit("-H", "--wrap", "true")


@pytest.fixture
def jobs(pair: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    yield from jobs_on(pair, request)


def test_a_standby_that_takes_over_refuses_no_job(jobs: Jobs, pair: Cluster) -> None:
    """Where GPUs have a type in slurm.conf and shards do not, 22.05 has none under a standby: jobs have a GPU each."""
    gres = pair.slurm("sinfo", "-h", "-p", "gpu", "-o", "%G")
    lost = "shard:h200:" not in gres
    first = share(jobs, "true")
    pair.clock.sleep(UNSURE_S)
    runs = share(jobs, f"while [ ! -e {jobs.folder}/end ]; do sleep 0.2; done")
    assert "booked 4.0 GiB" in runs.messages, (first, runs)
    jobs.wait(runs.job_id or 0, "RUNNING")
    pair.clock.sleep(2)  # a change within the second of a save is saved with the next change
    began_s = pair.clock.now_s()
    jobs.wait(share(jobs, "true").job_id or 0, "COMPLETED")
    pair.wait("its state is saved", lambda: pair.saved_since(began_s), SAVED_S)
    pair.daemons.kill("slurmctld")

    tried: list[SubmitResult] = []

    def taken() -> bool:
        tried.append(share(jobs, "echo on $RAD_GPUS"))
        return "Unable to contact" not in tried[-1].messages

    with without_power(port_of(pair)):
        pair.wait("one slurmctld is in charge", taken, 60)
        early = tried[-1]
        pair.clock.sleep(UNSURE_S + 2)  # the first ten seconds are over, and radd has looked
        late = share(jobs, "echo on $RAD_GPUS")
        for job, keeps in ((early, forgets_shards()), (late, lost)):
            assert job.job_id is not None, job.messages
            assert ("has no shards yet" in job.messages) == keeps, job.messages
        printed = Path(jobs.fields(early.job_id or 0)["StdOut"])
        jobs.wait(late.job_id or 0, "COMPLETED")
        assert jobs.output(late.job_id or 0).startswith("on GPU-")
        (jobs.folder / "end").touch()
        jobs.wait(runs.job_id or 0, "COMPLETED")
        if not lost:
            grows = jobs.submit("--gpus=1", SAID, "--wrap", OUTGROWS).job_id or 0

            def alone() -> bool:
                let_look(jobs)
                return jobs.state(grows) == "COMPLETED"

            pair.wait("it runs again, with a GPU of its own", alone, 90)
            assert jobs.restarts(grows) == 1 and "phase 2 of 2 done" in jobs.output(grows)
        reported = doctor(pair)["standby"]
        levels = ["unseen", "fail", "warn", "warn"] if lost else ["unseen", "warn"]
        assert [level for level, _ in reported] == levels, reported
        assert reported[levels.index("warn")][1].startswith(
            f"slurmctld on {socket.gethostname()} does not answer"
        ), reported

    pair.start_slurmctld()  # and is in charge again
    pair.clock.sleep(UNSURE_S + 2)

    def shares() -> bool:
        tried.append(share(jobs, "true"))
        return "booked 4.0 GiB" in tried[-1].messages

    pair.wait("jobs share under the first again", shares, 120)
    jobs.wait(tried[-1].job_id or 0, "COMPLETED", timeout_s=60)

    def ran() -> bool:
        """It may have been requeued without a GPU; 26.05 forgets jobs that ended under the other slurmctld."""
        return printed.exists() and printed.read_text().startswith("on GPU-")

    pair.wait("the first job has run", ran, 180)  # with Slurm's own delay where its Prolog ran out of time


def test_doctor_names_the_slurmctld_that_does_not_answer(pair: Cluster) -> None:
    def said() -> bool:
        return any(
            text.startswith("slurmctld on standby does not answer") for _, text in doctor(pair)["standby"]
        )

    second_stands_by(pair)
    assert not said()
    pair.daemons.kill(SECOND)
    assert said()
    start_second(pair)
    second_stands_by(pair)
    assert not said()


def test_what_the_first_lent_is_taken_back_by_the_standby(jobs: Jobs, pair: Cluster) -> None:
    """Its machine is gone, radd with it; the rerun waits for a GPU meanwhile."""
    if "shard:h200:" not in pair.slurm("sinfo", "-h", "-p", "gpu", "-o", "%G"):
        pytest.skip("the standby knows of no shards, so that no pending job that asks for them starts")
    control = SlurmCommands(slurm_conf=str(pair.place.slurm_conf), timeout_s=10)

    def view(job_id: int) -> JobView:
        found = control.job(job_id)
        assert found is not None
        return found

    def in_charge() -> bool:
        try:
            return control.job(rerun) is not None
        except SlurmError:
            return False

    def runs() -> bool:
        let_look(jobs)
        return view(rerun).state == "RUNNING"

    second_stands_by(pair)
    share(jobs, "true")
    pair.clock.sleep(UNSURE_S + 2)  # from then on jobs share
    fill_gpus(jobs)
    rerun = underestimated(jobs)
    pair.wait("priority is lent", lambda: view(rerun).nice < 0 and view(rerun).state == "PENDING", 60)
    pair.clock.sleep(2)
    began_s = pair.clock.now_s()
    assert jobs.submit("-H", "--wrap", "true").job_id is not None  # a change to be saved
    pair.wait("its state is saved", lambda: pair.saved_since(began_s), SAVED_S)
    pair.daemons.kill("slurmctld")
    pair.daemons.kill("radd")
    try:
        with without_power(port_of(pair)):
            pair.wait("the standby is in charge", in_charge, 60)
            assert view(rerun).nice < 0
            (jobs.folder / "go").touch()
            pair.wait("it runs again", runs, 60)
            pair.wait("it is taken back", lambda: view(rerun).nice == 0, POLL_IDLE_S + 15)
    finally:
        for name in ("go", "end"):
            (jobs.folder / name).touch()
        pair.start_slurmctld()
        pair.restart_radd()


def forgets_shards() -> bool:
    version = installed_version()
    assert version is not None
    return traits(version).forgets_shards


def share(jobs: Jobs, script: str) -> SubmitResult:
    return jobs.submit("--gpus=1", SAID, "--wrap", script)


def doctor(cluster: Cluster) -> dict[str, list[tuple[str, str]]]:
    argv = (
        f"{cluster.place.venv}/bin/rad",
        "doctor",
        "--json",
        "--config",
        str(cluster.place.etc / "rad.n0.toml"),
    )
    try:
        text = cluster.slurm(*argv)
    except CommandError as exc:
        text = exc.output
    reported: dict[str, list[tuple[str, str]]] = {}
    for each in json.loads(text)["findings"]:
        if each["level"] != "ok":
            reported.setdefault(each["subject"], []).append((each["level"], each["text"]))
    return reported
