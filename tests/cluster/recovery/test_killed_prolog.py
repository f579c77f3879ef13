"""A Prolog that is killed (-9) both times: its job must not run next to others, nor be lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.cluster import Cluster
from lab.files import rewrite
from lab.jobs import Jobs

pytestmark = pytest.mark.cluster
SHARED = ("--gpus=1", "--comment=rad:memory=4G")


@pytest.fixture
def _killed(cluster: Cluster) -> Iterator[None]:
    """Kill every Prolog before it has done anything."""
    hook, killed = cluster.place.etc / "prolog.sh", cluster.place.etc / "killed"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    text = hook.read_text()
    rewrite(hook, text.replace(f"{cluster.place.venv}/bin/python -I -m prolog", str(killed)))
    assert str(killed) in hook.read_text()
    yield
    rewrite(hook, text)


@pytest.mark.usefixtures("_killed")
def test_its_job_goes_back_and_one_that_cannot_runs_as_slurm_started_it(jobs: Jobs, cluster: Cluster) -> None:
    job = jobs.accepted(*SHARED, "--requeue", "--wrap", "touch started")
    stays = jobs.accepted(*SHARED, "--no-requeue", "--wrap", "echo GPU $RAD_GPUS")
    cpu = jobs.accepted("--requeue", "--wrap", "true")
    cluster.wait("it is requeued", lambda: jobs.restarts(job) == 1, 20)
    assert not (jobs.folder / "started").exists()
    assert jobs.wait(stays)["JobState"] == "COMPLETED"
    assert "GPU GPU-" not in jobs.output(stays), "it was not placed"
    ended = jobs.wait(cpu)
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "0")
    placed = cluster.place.run / "n0" / "placed"
    cluster.wait(
        "the word is gone", lambda: not any((placed / str(one)).exists() for one in (job, stays)), 20
    )
