"""A job that runs out of GPU memory comes back under its id with all of a GPU; no other job is treated so."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.config import shards_of
from lab.jobs import Jobs
from slurm_plugin.core.comments.admin_comment import read_note
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.errors import CommandError
from tests.timing import within

pytestmark = pytest.mark.cluster

PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
WHOLE = shards_of(40960)
GROWS = "python3 fake_train.py --memory 3.8G,30G --seconds 3"
"""Fills its share before it requests more: only then does the monitor's record agree that memory ran out."""

BEYOND_ANY_GPU = "python3 fake_train.py --memory 1G,60G --seconds 3"
NO_DELAY_S = 60
"""A requeued job would wait 120 s (Slurm's cred_expire); being well below shows that the delay was cleared."""


def booked(jobs: Jobs, *more: str, wrap: str = GROWS, rad: str = "memory=4G") -> int:
    return jobs.accepted("--gpus=1", f"--comment=rad:{rad}", "--open-mode=append", *more, "--wrap", wrap)


def test_the_same_job_runs_again_alone_and_soon(jobs: Jobs, cluster: Cluster) -> None:
    job = booked(jobs)
    start_s = cluster.clock.monotonic_s()
    again = jobs.wait(job, "COMPLETED", timeout_s=NO_DELAY_S)
    assert cluster.clock.monotonic_s() - start_s < within(NO_DELAY_S)
    assert (again["Restarts"], again["JobState"]) == ("1", "COMPLETED")
    assert again["TresPerNode"].rpartition(":")[2] in {str(WHOLE), "1"}
    text = jobs.output(job)
    assert "torch.OutOfMemoryError" in text and "phase 2 of 2 done, 30.00 GiB" in text
    assert "\nRAD: run 2 of this job; run 1: out of GPU memory (" in text
    assert (
        "recover" in again.get("AdminComment", "").lower()
        or "memory" in again.get("AdminComment", "").lower()
    )


@pytest.mark.slow
def test_escalation_shares_once_more_with_what_was_seen_and_requested(jobs: Jobs, cluster: Cluster) -> None:
    with cluster.changed_rad_toml():
        cluster.set_rad("max_recoveries", '2\nrecovery = "escalate"')
        job = booked(jobs, wrap="python3 fake_train.py --memory 3.8G,8G --seconds 3")
        again = jobs.wait(job, "COMPLETED", timeout_s=NO_DELAY_S)
    assert again["Restarts"] == "1"
    assert int(again["TresPerNode"].rpartition(":")[2]) == 14  # 4 booked, 4.2 requested, 5 as a margin
    assert "phase 2 of 2 done, 8.00 GiB" in jobs.output(job)


@pytest.mark.any_slurm("a count in RAD's own AdminComment")
@pytest.mark.slow
def test_a_job_that_no_gpu_can_hold_stops_after_the_last_recovery(jobs: Jobs) -> None:
    job = booked(jobs, "--open-mode=truncate", wrap=BEYOND_ANY_GPU)
    jobs.cluster.wait(
        "the job fails for good",
        lambda: jobs.state(job) == "FAILED" and jobs.restarts(job) >= 1,
        120,
    )
    settled = jobs.fields(job)
    assert 1 <= int(settled["Restarts"]) <= 2
    assert jobs.output(job).startswith("RAD: run 2 of this job; run 1: out of GPU memory ("), (
        "its own is overwritten"
    )


def test_the_last_note_without_slurmdbd_says_what_happened_and_promises_nothing(
    jobs: Jobs, cluster: Cluster
) -> None:
    """Slurm takes no AdminComment from the moment a job ends: the note of its last requeue stays."""
    job = booked(jobs, wrap=BEYOND_ANY_GPU)
    cluster.wait(
        "the job fails for good", lambda: jobs.state(job) == "FAILED" and jobs.restarts(job) == 1, NO_DELAY_S
    )
    with pytest.raises(CommandError, match="already finished"):
        cluster.slurm("scontrol", "update", f"JobId={job}", "AdminComment=none")
    note = read_note(jobs.fields(job)["AdminComment"])
    assert note is not None and (note.event, note.restart) == ("recovered", 1)
    assert "requeued with a whole GPU" in note.detail and "again" not in note.detail, note


def test_a_controller_that_shares_no_state_reports_what_slurm_knows(
    jobs: Jobs, cluster: Cluster, tmp_path: Path
) -> None:
    """And says where the rest is."""
    window = cluster.place.run / "n0" / "monitor" / "window.json"
    (jobs.folder / "end").touch()
    job = booked(jobs, wrap=f"python3 {PROGRAMS / 'fills.py'} {jobs.folder} {window}")
    jobs.wait(job, "COMPLETED", timeout_s=NO_DELAY_S)
    shared = cluster.place.etc / "rad.toml"
    alone = tmp_path / "rad.toml"
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "peaks.jsonl").touch()
    alone.write_text(shared.read_text().replace(str(cluster.place.root / "state"), str(tmp_path / "state")))
    assert alone.read_text() != shared.read_text()

    def report(config: Path) -> str:
        return cluster.slurm(f"{cluster.place.venv}/bin/rad", "report", str(job), "--config", str(config))

    cluster.wait("both runs are recorded", lambda: "run 2" in report(shared), 20)
    assert "not seen   its runs" not in report(shared) and "note  " not in report(shared)
    text = report(alone)
    assert "requeued   1 time\n" in text, text
    assert "note       recovered: peak 3.8 GiB, out of GPU memory" in text, text
    assert f"not seen   its runs: run rad report {job} on n0, or share {tmp_path}" in text, text


@pytest.mark.parametrize(
    ("options", "rad"),
    [(["--no-requeue"], "memory=4G"), ([], "memory=4G,retry=no")],
    ids=["--no-requeue", "retry=no"],
)
def test_a_job_that_wants_no_rerun_gets_none(jobs: Jobs, options: list[str], rad: str) -> None:
    job = booked(jobs, *options, rad=rad)
    failed = jobs.wait(job, "FAILED")
    assert failed["Restarts"] == "0"
    follower = jobs.accepted("--gpus=1", "--comment=rad:memory=4G", "--wrap", "true")
    jobs.wait(follower, "COMPLETED")
    assert (jobs.state(job), jobs.fields(job)["Restarts"]) == ("FAILED", "0")


@pytest.mark.parametrize(
    "wrap",
    ["exit 1", "echo CUDA out of memory; exit 0", "kill -9 $$"],
    ids=["fails", "prints the words and succeeds", "killed"],
)
def test_other_ends_are_left_as_they_are(jobs: Jobs, wrap: str) -> None:
    job = booked(jobs, wrap=wrap)
    ended = jobs.wait(job)
    jobs.cluster.wait("the epilog is over", lambda: not jobs.cluster.allocations("n0"), 20)
    assert (jobs.state(job), jobs.fields(job)["Restarts"]) == (ended["JobState"], "0")


def test_a_job_that_its_owner_ends_or_holds_is_left_to_him(jobs: Jobs, cluster: Cluster) -> None:
    """It ran out of memory, went on, and its trap gives it an exit status of its own: no other job puts it back."""
    words = "trap 'exit 1' TERM; echo CUDA out of memory.; while :; do sleep 0.1; done"
    ended, held_job, gone = (booked(jobs, wrap=words) for _ in range(3))
    for job in (ended, held_job, gone):
        jobs.wait(job, "RUNNING")
        cluster.wait("it has said so", lambda job=job: "memory" in jobs.output(job), 20)
    cluster.slurm("scancel", "--batch", "--signal=TERM", str(ended), user="nobody")
    cluster.slurm("scontrol", "requeuehold", str(held_job), user="nobody")
    cluster.slurm("scancel", str(gone), user="nobody")
    jobs.wait(ended, "FAILED")
    jobs.wait(gone, "CANCELLED")
    cluster.wait("their Epilogs are over", lambda: not cluster.allocations("n0"), 20)
    waits = jobs.wait(held_job, "PENDING")
    assert (waits["Priority"], waits["TresPerNode"].rpartition(":")[2]) == ("0", "4")
    assert [jobs.fields(job)["Restarts"] for job in (ended, held_job, gone)] == ["0", "1", "0"]


@pytest.mark.any_slurm("the Epilog's evidence, before Slurm hears of it")
@pytest.mark.slow
def test_words_without_memory_buy_no_priority(jobs: Jobs) -> None:
    words = "echo torch.OutOfMemoryError: CUDA out of memory. >&2"
    wrap = f"python3 fake_train.py --memory 1G --seconds 1.5; {words}; exit 1"
    job = booked(jobs, wrap=wrap)
    jobs.cluster.wait(
        "it has ended or is back", lambda: jobs.state(job) != "RUNNING" and jobs.state(job) != "", 30
    )
    jobs.wait(job, "FAILED", timeout_s=200)
    assert int(jobs.fields(job)["Priority"]) != PartitionConfig().recovery_priority


def test_an_array_task_recovers_as_itself(jobs: Jobs) -> None:
    job = jobs.accepted(
        "--array=7",
        "--gpus=1",
        "--comment=rad:memory=4G",
        "--open-mode=append",
        "--output=out.%A_%a",
        "--wrap",
        GROWS,
    )
    plain = ("-p", "plain", "--wrap", "true")
    task = jobs.submit("--array=7", f"--dependency=aftercorr:{job}", *plain).job_id
    whole = jobs.submit(f"--dependency=afterok:{job}", *plain).job_id
    assert task is not None and whole is not None
    again = jobs.wait(f"{job}_7", "COMPLETED", timeout_s=NO_DELAY_S)
    assert again["Restarts"] == "1"
    assert "phase 2 of 2 done" in (jobs.folder / f"out.{job}_7").read_text()
    jobs.wait(f"{task}_7", "COMPLETED")
    jobs.cluster.wait(
        "Slurm counts the first run's exit code (docs/troubleshooting.md)",
        lambda: jobs.fields(whole)["Reason"] == "DependencyNeverSatisfied",
        60,
    )


@pytest.mark.slow
def test_a_job_that_depends_on_another_waits_for_its_rerun(jobs: Jobs) -> None:
    """afterok is decided by the rerun, and afternotok does not take the first run for the end."""
    job = booked(jobs)
    after = jobs.submit("-p", "plain", f"--dependency=afterok:{job}", "--wrap", "true").job_id
    never = jobs.submit("-p", "plain", f"--dependency=afternotok:{job}", "--wrap", "true").job_id
    assert after is not None and never is not None
    jobs.wait(job, "COMPLETED", timeout_s=NO_DELAY_S)
    jobs.wait(after, "COMPLETED")
    assert jobs.state(never) in ("PENDING", "CANCELLED"), "it never ran"
