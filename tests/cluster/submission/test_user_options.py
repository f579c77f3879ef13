"""Slurm's own options and commands, on a job that shares: they do what they do without RAD."""

from __future__ import annotations

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs

pytestmark = pytest.mark.cluster

SHARES = ("--gpus=1", "--comment=rad:memory=4G", "--open-mode=append")
GROWS = "python3 fake_train.py --memory 3G,18G --seconds 1.5"
RERUN_S = 180
"""A run, Slurm's delay, and a rerun until half a minute before its limit of two."""

LOOKED_S = 6.0
"""Some samples of rad-monitor."""


def as_user(jobs: Jobs, script: str) -> str:
    return jobs.cluster.slurm("runuser", "-u", "nobody", "--", "sh", "-c", f"cd {jobs.folder} && {script}")


def test_parsable_prints_the_id_alone_where_a_program_reads_it(jobs: Jobs) -> None:
    assert as_user(jobs, f"sbatch --parsable {' '.join(SHARES)} --wrap true 2>/dev/null").strip().isdigit()


def test_test_only_leaves_nothing_behind(jobs: Jobs, cluster: Cluster) -> None:
    def kept() -> dict[str, str]:
        found = (cluster.place.root / "state").rglob("*")
        return {str(path): path.read_text() for path in found if path.is_file()}

    jobs.accepted(*SHARES, "--hold", "--wrap", "true")  # whatever a submission leaves is there
    before = kept()
    assert "to start at" in as_user(jobs, f"sbatch --test-only {' '.join(SHARES)} --wrap true 2>&1")
    assert kept() == before


def test_a_suspended_job_keeps_its_memory_booked(jobs: Jobs, cluster: Cluster) -> None:
    job = jobs.accepted(*SHARES, "--wrap", "python3 fake_train.py --memory 3G --until end")
    cluster.wait("it trains", lambda: "training" in jobs.output(job), 20)
    before = cluster.allocations("n0")
    cluster.slurm("scontrol", "suspend", str(job))
    jobs.wait(job, "SUSPENDED")
    cluster.slurm("scontrol", "update", f"JobId={job}", "TimeLimit=9")
    cluster.clock.sleep(LOOKED_S)
    assert cluster.allocations("n0") == before != []
    cluster.slurm("scontrol", "resume", str(job))
    (jobs.folder / "end").touch()
    done = jobs.wait(job, "COMPLETED")
    assert (done["Restarts"], done["TimeLimit"]) == ("0", "00:09:00")


def test_a_signal_before_the_limit_reaches_the_rerun(jobs: Jobs) -> None:
    """The first run ends for want of memory; the rerun trains until Slurm shows it that its time is nearly over.

    Slurm looks at limits twice a minute and may send a signal that much too early, here a minute after a start. With a
    limit of one minute it might come with the start itself, to the first run or to a script that is not there yet.
    """
    waits = "while :; do sleep 0.2; done"
    script = (
        f'trap "echo signalled; exit 0" USR1; [ -n "$SLURM_RESTART_COUNT" ] || {GROWS} || exit 1; {waits}'
    )
    job = jobs.accepted(*SHARES, "--time=2", "--signal=B:USR1@30", "--wrap", script)
    done = jobs.wait(job, "COMPLETED", timeout_s=RERUN_S)
    assert (done["Restarts"], jobs.output(job).count("signalled")) == ("1", 1)
