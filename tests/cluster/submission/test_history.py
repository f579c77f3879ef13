"""A job that comes again is booked what it was seen to need."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpumemnet.units import GIB
from lab.cluster import Cluster
from lab.jobs import Jobs, SubmitResult
from slurm_plugin.core.history.observed import LEAST_RUN_S
from slurm_plugin.core.history.runs import LEAST_MARGIN_BYTES, MARGIN
from slurm_plugin.monitor.window import read_job

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.any_slurm(
        "radd's memory of runs; Slurm's part, a comment and an exit status, is asked for in test_recovery"
    ),
]

MODEL = "model=models/resnet50_torchsummary.txt,optimizer=sgd"
PEAK_GIB = 6
SHARDS = -(-max(int(PEAK_GIB * GIB * MARGIN), PEAK_GIB * GIB + LEAST_MARGIN_BYTES) // GIB)
"""Of 1 GiB, for the observed peak and its margin."""


SEEN = "GiB in earlier runs; booked"


def submit(jobs: Jobs, *more: str, batch_size: int = 64, peak_gib: int = PEAK_GIB) -> SubmitResult:
    """Submit a training that goes on until `ends`."""
    train = f"python3 fake_train.py --memory {peak_gib}G --seconds 0 --until end.$SLURM_JOB_ID"
    comment = f"--comment=rad:{MODEL},batch_size={batch_size}"
    job = jobs.submit(*more, "--gres=gpu:1", comment, "--wrap", train)
    assert job.job_id is not None, job.messages
    return job


def estimate_answer(jobs: Jobs) -> str:
    place = jobs.cluster.place
    words = [f"{place.venv}/bin/rad-estimate", f"--config={place.etc}/rad.toml", "--ask"]
    model = ["models/resnet50_torchsummary.txt", "--optimizer=sgd", "--batch-size=64"]
    shell = ["runuser", "-u", "nobody", "--", "sh", "-c", 'cd "$0" && exec "$@"', str(jobs.folder)]
    return jobs.cluster.slurm(*shell, *words, *model)


def rad(cluster: Cluster, *words: str) -> dict[str, Any]:
    config = str(cluster.place.etc / "rad.toml")
    tree: dict[str, Any] = json.loads(
        cluster.slurm(f"{cluster.place.venv}/bin/rad", *words, "--config", config)
    )
    return tree


def ends(jobs: Jobs, job_id: int | None, seen_s: float = 0.0) -> None:
    """Let a training end well once rad-monitor has seen it for so long."""
    assert job_id is not None
    cluster = jobs.cluster

    def seen() -> bool:
        usage = read_job(cluster.place.run / "n0", job_id)
        return usage is not None and cluster.clock.now_s() - usage.first_s > seen_s

    cluster.wait("rad-monitor has seen it", seen, 60 + seen_s)
    (jobs.folder / f"end.{job_id}").touch()
    assert jobs.wait(job_id)["JobState"] == "COMPLETED", jobs.output(job_id)


def shards(jobs: Jobs, job_id: int) -> int:
    return int(jobs.fields(job_id)["TresPerNode"].rpartition(":")[2])


def test_the_second_submission_of_a_job_books_its_observed_peak(jobs: Jobs, cluster: Cluster) -> None:
    short = submit(jobs, peak_gib=1)
    first = submit(jobs)
    assert SEEN not in short.messages + first.messages
    ends(jobs, short.job_id)
    ends(jobs, first.job_id, LEAST_RUN_S + 1)
    booked_first = shards(jobs, first.job_id)

    found: list[SubmitResult] = []

    def known() -> bool:
        found.append(submit(jobs, "--hold"))
        return SEEN in found[-1].messages

    cluster.wait("radd has heard of the peak", known, 30)
    assert shards(jobs, found[-1].job_id) == SHARDS < booked_first
    assert SEEN in estimate_answer(jobs), "the dry run hears of it through Slurm"
    reported = rad(cluster, "history", "--json")
    assert "resnet50_torchsummary" in [row["model"]["name"] for row in reported["models"] if row["model"]]
    story = rad(cluster, "report", str(first.job_id), "--json")
    (run,) = story["runs"]
    assert (run["run"]["outcome"], run["run"]["node"], story["slurm"]["state"]) == ("ok", "n0", "COMPLETED")
    assert run["run"]["peak_bytes"] == PEAK_GIB * GIB <= story["booking"]["memory_bytes"]
    assert story["model"]["name"] == "resnet50_torchsummary"
    assert {"placed", "ok"} <= {event["event"] for event in story["events"]}
    assert story["waited_s"] is not None and not story["missing"]
    # Trained in another way it is another job.
    assert SEEN not in submit(jobs, "--hold", batch_size=96).messages


def test_a_short_run_that_ended_well_lowers_no_booking(jobs: Jobs, cluster: Cluster) -> None:
    """It may have ended before its first whole step: another run of the model would run out of memory."""
    first = submit(jobs, batch_size=48, peak_gib=1)
    ends(jobs, first.job_id)

    def reported() -> bool:
        return bool(rad(cluster, "report", str(first.job_id), "--json")["runs"])

    cluster.wait("it is remembered", reported, 30)
    cluster.restart_radd()  # which reads all that is remembered
    second = submit(jobs, "--hold", batch_size=48)
    assert SEEN not in second.messages
    assert shards(jobs, second.job_id) == shards(jobs, first.job_id)
