"""radd dead, hung or slow: submissions go on as Slurm alone would take them."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from lab.cluster import Cluster
from lab.config import deadline, shards_of
from lab.jobs import Jobs
from lab.place import PATIENT_S
from tests.timing import within

pytestmark = pytest.mark.cluster

SUBMIT = ("-H", "--gpus=1", "--comment=rad:memory=5G", "--wrap", "true")
A_USER_WAITS_S = 5.0
"""Most that a submission may take with radd hung: the budget is 0.1 s; the rest is sbatch on a busy machine."""


@pytest.fixture
def radd_back(cluster: Cluster) -> Iterator[None]:
    """Let submissions wait for radd as long as on a site, and restore all at the end."""
    settings = cluster.place.etc / "rad" / "rad_settings.lua"
    before = settings.read_text()
    assert deadline(PATIENT_S) in before
    settings.write_text(before.replace(deadline(PATIENT_S), deadline(0.1)))
    cluster.reset_breaker()
    yield
    settings.write_text(before)
    cluster.daemons.signal("radd", signal.SIGCONT)
    cluster.restart_radd()


def submitted_unchanged(jobs: Jobs) -> bool:
    """Return whether a job was taken as one GPU, unsigned; where Slurm needs it, as all shards of a GPU."""
    started_s = jobs.cluster.clock.monotonic_s()
    job = jobs.submit(*SUBMIT)
    took_s = jobs.cluster.clock.monotonic_s() - started_s
    assert job.job_id is not None, job.messages
    assert took_s < within(A_USER_WAITS_S)
    fields = jobs.fields(job.job_id)
    gres = fields.get("TresPerNode", fields.get("TresPerJob", "")).rpartition(":")[2]
    return "rad2:" not in fields["Comment"] and gres in ("1", str(shards_of(40960)))


@pytest.mark.usefixtures("radd_back")
def test_a_dead_radd_changes_nothing_and_comes_back(jobs: Jobs, cluster: Cluster) -> None:
    cluster.daemons.stop("radd")
    assert all(submitted_unchanged(jobs) for _ in range(5))
    cluster.restart_radd()
    cluster.wait("the shim calls radd again", lambda: not submitted_unchanged(jobs), 60)


@pytest.mark.usefixtures("radd_back")
def test_a_hung_radd_costs_a_moment_and_never_a_submission(jobs: Jobs, cluster: Cluster) -> None:
    cluster.daemons.signal("radd", signal.SIGSTOP)
    assert all(submitted_unchanged(jobs) for _ in range(5))
    started_s = cluster.clock.monotonic_s()
    for _ in range(10):
        assert submitted_unchanged(jobs)
    assert cluster.clock.monotonic_s() - started_s < within(10 * A_USER_WAITS_S / 2), (
        "the breaker does not open"
    )


@pytest.mark.usefixtures("radd_back")
@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"{",
        b"garbage\n",
        b'{"v":1}',
        b"\0\xff\n",
        b"[" * 100_000 + b"\n",
        b"x" * (1 << 20) + b"\n",
        b"%s%d\n",
    ],
    ids=["nothing", "half a line", "garbage", "no newline", "binary", "deep", "1 MB", "percent"],
)
def test_a_mad_radd_changes_nothing(jobs: Jobs, cluster: Cluster, reply: bytes) -> None:
    cluster.daemons.stop("radd")
    path = cluster.place.run / "radd.sock"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen()
        listener.settimeout(20)
        connected = threading.Event()

        def answer() -> None:
            connection, _ = listener.accept()
            connected.set()
            with connection:
                connection.recv(1 << 16)
                connection.settimeout(5)
                try:
                    connection.sendall(reply)
                except OSError:
                    return

        cluster.reset_breaker()
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        unchanged = submitted_unchanged(jobs)
        thread.join(10)
    assert connected.is_set(), "the shim never connected: this test saw nothing"
    assert unchanged


@pytest.mark.usefixtures("radd_back")
def test_a_missing_socket_changes_nothing(jobs: Jobs, cluster: Cluster) -> None:
    cluster.daemons.stop("radd")
    (cluster.place.run / "radd.sock").unlink(missing_ok=True)
    assert submitted_unchanged(jobs)
