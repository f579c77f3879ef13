"""One private Slurm for all tests of a session; each test brings its own jobs and waits on conditions."""

from __future__ import annotations

import fcntl
import itertools
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.install import why_no_slurm
from lab.jobs import Jobs
from lab.place import PATIENT_S, ClusterSpec, NodeSpec, Place, home_of
from slurm_plugin.slurm.versions import Traits, Version, known, parse_version, traits

CHECKOUT = Path(__file__).resolve().parent.parent.parent
LOG_LINES = 40
_NUMBERS = itertools.count(1)
_FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def place(pytestconfig: pytest.Config) -> Iterator[Place]:
    reason = why_no_slurm()
    assert reason is None, reason
    home, _ = home_of(CHECKOUT)
    ready = home / "venv" / "installed"
    assert ready.exists(), "the hooks run in .rad/venv: start the tests with `make test`"
    with _own_folder(home) as root:
        for old in _folders(root):  # of a session that was killed
            Cluster(Place(root=old, venv=home / "venv")).down()
            shutil.rmtree(old, ignore_errors=True)
        yield Place(root=root, venv=home / "venv")
        if not pytestconfig.stash.get(_FAILED, False):
            for old in _folders(root):
                shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _own_folder(home: Path) -> Iterator[Path]:
    """Lock the first folder that no session uses.

    Process ids cannot tell them apart: sessions side by side in CI have PID namespaces of their own.
    """
    for number in itertools.count(1):
        root = home / f"test-{number}"
        with root.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield root
            return


def _folders(root: Path) -> list[Path]:
    """Return the folders of a session's clusters, as far as they exist."""
    return [path for path in (root, *root.parent.glob(f"{root.name}-*")) if path.exists()]


@pytest.fixture(scope="session")
def cluster(place: Place) -> Iterator[Cluster]:
    """One node with four equal GPUs."""
    yield from started(place, ClusterSpec(nodes=(NodeSpec(name="n0"),)))


@pytest.fixture
def version(cluster: Cluster) -> Version:
    """The version of the Slurm that runs here."""
    found = parse_version(cluster.slurm("scontrol", "--version"))
    assert known(found)
    return found


@pytest.fixture
def here(version: Version) -> Traits:
    """How it behaves."""
    return traits(version)


@pytest.fixture(scope="module")
def two_nodes(place: Place) -> Iterator[Cluster]:
    """Two nodes whose GPUs differ, for the module that uses it."""
    nodes = (NodeSpec(name="n0", gpu_mib=(40960, 40960)), NodeSpec(name="n1", gpu_mib=(81920, 81920)))
    yield from started(place, ClusterSpec(nodes=nodes), name="two")


def started(place: Place, spec: ClusterSpec, *, name: str = "") -> Iterator[Cluster]:
    """Run a cluster, with a name in a folder of its own; a module that has one overrides the fixture `cluster`.

    Its submissions have radd's answer on any machine.
    """
    root = place.root.with_name(f"{place.root.name}-{name}") if name else place.root
    running = Cluster(replace(place, root=root))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cluster is stopped on the way out
    try:
        running.up(replace(spec, answer_s=PATIENT_S))
        yield running
    finally:
        running.down()


@pytest.fixture
def jobs(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    """A folder that any user may write to, with the examples in it; what is left of the test's jobs is cancelled."""
    yield from jobs_on(cluster, request)


@pytest.fixture
def wide_jobs(two_nodes: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    """The same on the two nodes."""
    yield from jobs_on(two_nodes, request)


def jobs_on(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    folder = cluster.place.root / "work" / f"{request.node.originalname}-{next(_NUMBERS)}"
    shutil.copytree(CHECKOUT / "examples", folder)
    folder.chmod(0o1777)
    yield Jobs(cluster, folder)
    cluster.cancel_jobs()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show Slurm's side of a failure as it was in that moment: its state, and the end of every log."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if not report.failed:
        return
    item.config.stash[_FAILED] = True
    for cluster in _clusters_of(item):
        report.sections.append((f"state of {cluster.place.root.name}", cluster.state()))
        report.sections.append((f"logs of {cluster.place.root.name}", cluster.logs(LOG_LINES)))


def _clusters_of(item: pytest.Item) -> list[Cluster]:
    """Return the clusters that a test was given, by itself or with its jobs."""
    given = getattr(item, "funcargs", {}).values()
    found = [
        one.cluster if isinstance(one, Jobs) else one for one in given if isinstance(one, (Jobs, Cluster))
    ]
    return list({id(cluster): cluster for cluster in found}.values())
