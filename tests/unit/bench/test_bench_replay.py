"""What a replay requests of Slurm, and what it makes of its readings; the run is bench/replay/run.sh --stand-in."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))

from paths import CHECKOUT
from replay.as_measured import rewritten
from replay.check import check
from replay.figures import figures
from replay.job.record import Loader
from replay.options import run_parser
from replay.plan import plan, unmeasured
from replay.policies import ESTIMATES, POLICIES, alone, directives, rad_toml
from replay.run import shards_of

WITH_DATA = pytest.mark.skipif(
    find_spec("gpumemnet.learning.dataset") is None, reason="rad-slurm-train is not installed"
)

TRACE = """job,arrival_s,workload,gpus,epochs,duration_min,mem_mib_a100
1,0.0,vgg3,1,1,44.6,21864.0
2,120.0,xlnet_base_cased_2,2,8,59.04,9192.0
3,240.0,resnet18_cifar100_20e_1,1,20,9.8,788.0
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    path.write_text(TRACE)
    return path


def test_the_work_is_the_trace_compressed_with_the_same_share_of_waiting(trace: Path) -> None:
    jobs = plan(trace, compress=60, gpus=2)
    assert [job.submit_s for job in jobs] == [0.0, 2.0, 4.0]
    for job, minutes in zip(jobs, (44.6, 59.04, 9.8), strict=True):
        assert job.alone_s == pytest.approx(minutes, rel=0.05)
        assert job.period_s >= job.step_s
    small = jobs[2]
    # 20 epochs of 1,563 steps in 9.8 minutes are a step each 18.8 ms, of which 8.6 are trained.
    assert small.period_s == pytest.approx(9.8 * 60 / (20 * 1563), rel=0.01)
    assert [job.limit_min for job in jobs] == [2, 3, 1]
    assert len(plan(trace, compress=60, gpus=2, first=2)) == 2
    assert unmeasured(jobs) == ()


def test_a_machine_of_one_gpu_replays_the_jobs_of_one(trace: Path) -> None:
    assert [job.gpus for job in plan(trace, compress=60, gpus=2)] == [1, 2, 1]
    assert [job.gpus for job in plan(trace, compress=60, gpus=1, first=2)] == [1, 1]


def test_steps_count_as_measured_only_on_as_many_gpus(trace: Path) -> None:
    trace.write_text(TRACE.replace("vgg3,1", "vgg3,2"))
    assert unmeasured(plan(trace, compress=60, gpus=2)) == ("vgg3 on 2 GPU(s)",)


def test_each_policy_requests_gpus_in_its_own_form(trace: Path, tmp_path: Path) -> None:
    vgg, xlnet, _ = plan(trace, compress=60, gpus=2)
    (tmp_path / "vgg3.txt").write_text("a summary")

    def lines(job: Any, policy: str, estimates: str = "rad") -> list[str]:
        known = {"setup": "batch_size=128", "faketensor_mib": 900}
        return directives(job, POLICIES[policy], estimates, tmp_path, known)

    assert lines(vgg, "whole") == ["#SBATCH --gpus=1"]
    assert lines(vgg, "hand") == lines(vgg, "hand-mps") == ["#SBATCH --gres=shard:26"]
    assert lines(xlnet, "hand") == ["#SBATCH --gpus=2"]
    assert lines(vgg, "magm") == ["#SBATCH --gpus=1", f"#RAD model={tmp_path}/vgg3.txt batch_size=128"]
    assert lines(xlnet, "magm") == ["#SBATCH --gpus=2"], "no text of it is there"
    (tmp_path / f"{xlnet.workload}.rad").write_text("a trace")
    traced = f"#RAD model={tmp_path}/{xlnet.workload}.rad batch_size=128 gpus=2"
    assert lines(xlnet, "magm") == ["#SBATCH --gpus=2", traced]
    assert lines(vgg, "lug", "oracle") == ["#SBATCH --gpus=1", "#RAD memory=21864M"]
    assert lines(vgg, "lug", "faketensor") == ["#SBATCH --gpus=1", "#RAD memory=900M"]
    assert lines(vgg, "lug", "none") == ["#SBATCH --gpus=1"]
    assert rad_toml(POLICIES["lug"], "none") == ('policy = "lug"', 'default = "collocate"')
    assert {"rad", "horus", "oracle", "none"} <= set(ESTIMATES)


@WITH_DATA
def test_a_trace_is_checked_without_a_gpu(tmp_path: Path, trace: Path) -> None:
    """What no job described, what has no text and what was never measured is named; the rest is estimated."""
    text = (CHECKOUT / "examples" / "models" / "resnet18_torchinfo.txt").read_text()
    (tmp_path / "vgg3.txt").write_text(text)
    known: dict[str, Any] = {
        "vgg3": {"trains": "vgg3", "setup": "batch_size=64 optimizer=adam", "text": "torchinfo"},
        "a new one": {"trains": "UNet_8", "setup": "batch_size=8", "text": None},
    }
    vgg, xlnet, resnet = plan(trace, compress=60, gpus=2)
    new = replace(xlnet, workload="a new one", measured=False)
    rows = [check(job, 1, known, tmp_path, 142_000) for job in (vgg, new, resnet)]
    assert (rows[0].faults, rows[0].trains, rows[0].trace_mib) == ((), "vgg3", 21864)
    assert rows[0].books_mib is not None and 1000 < rows[0].books_mib < 20_000
    assert [fault.split(":")[0] for fault in rows[1].faults] == [
        "another model stands in",
        "steps never measured on 2 GPU(s)",
    ]
    assert rows[2].trains == "?" and "replay.workloads" in rows[2].faults[0]
    assert check(vgg, 1, known, tmp_path, 500).faults == ("books more than a GPU has",)


@WITH_DATA
def test_a_trace_gets_the_memory_that_was_measured_where_it_is_replayed() -> None:
    rows = [
        {"workload": "Xception", "gpus": "1", "mem_mib_a100": "5918.0"},
        {"workload": "mobilenet_cifar100_50e_3", "gpus": "1", "mem_mib_a100": "632.0"},
        {"workload": "xlnet_base_cased_2", "gpus": "2", "mem_mib_a100": "9192.0"},
    ]
    found = rewritten(rows)
    assert [row["mem_mib"] for row in found] == ["9272", "1118", "9192.0"], "the last one was never measured"
    assert all("mem_mib_a100" not in row for row in found)


def run(called_s: float, end_s: float, outcome: str = "ok") -> dict[str, Any]:
    return {"called_s": called_s, "trains_s": called_s + 1.0, "end_s": end_s, "outcome": outcome}


def job(submit_s: float, *runs: dict[str, Any], restarts: int = 0) -> dict[str, Any]:
    return {
        "submit_s": submit_s,
        "alone_s": 10.0,
        "runs": list(runs),
        "restarts": restarts,
        "booked_mib": 2000,
        "peak_mib": 1000,
    }


def test_figures_of_a_run_worked_out_by_hand() -> None:
    jobs = [
        job(0.0, run(1.0, 12.0)),
        job(2.0, run(4.0, 6.0, "oom"), run(10.0, 31.0), restarts=2),
        job(5.0),  # never started: the run was cut off
    ]
    physical_gpu = {"used_mib": [0, 50], "usable_mib": 100, "smact": [None, 0.5], "energy_j": 70.0}
    found = figures(jobs, {"gpus": [physical_gpu]})
    assert (found["jobs"], found["ended_well"]) == (3, 2)
    assert (found["makespan_s"], found["mean_waiting_s"]) == (31.0, 1.5)
    assert found["mean_completion_s"] == (12.0 + 29.0) / 2
    assert (found["median_slowdown"], found["max_slowdown"]) == (2.0, 2.0)
    assert (found["crashes"], found["recoveries"], found["lost_to_crashes_s"]) == (1, 1, 2.0)
    assert found["requeues"] == 1, "of two restarts one was a recovery"
    assert (found["booked_over_used"], found["energy_j"]) == (2.0, 70.0)
    assert (found["smact_mean"], found["memory_mean_share"]) == (0.5, 0.25)


def test_what_faults_cost_is_reported_for_honest_jobs_alone() -> None:
    jobs = [
        job(0.0, run(1.0, 4.0, "failed"), run(6.0, 17.0), restarts=1),
        job(2.0, run(4.0, 6.0, "fault")) | {"faults": True},
    ]
    found = figures(jobs, {"gpus": []})
    assert (found["jobs"], found["ended_well"], found["failed_runs"]) == (1, 1, 1)
    assert (found["lost_to_failures_s"], found["recoveries"], found["requeues"]) == (3.0, 1, 0)


def test_a_loader_makes_up_for_a_slow_step_only_as_far_as_its_backlog(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", lambda s: now.__setitem__(0, now[0] + s))
    loader = Loader(1.0)
    for _ in range(3):
        loader.wait()
    assert now[0] == pytest.approx(2.0)
    now[0] += 100.0  # a step that takes long
    begin = now[0]
    for _ in range(8):
        loader.wait()
    assert 3.0 <= now[0] - begin <= 8.0, (
        "batches that were ready come at once, the others at the loader's pace"
    )


@pytest.mark.parametrize(
    ("fields", "shards"),
    [
        ({"TresPerNode": "gres/shard:11"}, 11),
        ({"TresPerNode": "gres/shard:h200:35"}, 35),
        ({"TresPerTask": "cpu=1,gres/shard=14"}, 14),
        ({"TresPerNode": "gres/gpu:2"}, 0),
        ({}, 0),
    ],
)
def test_what_a_job_booked_is_read_in_every_spelling(fields: dict[str, str], shards: int) -> None:
    assert shards_of(fields) == shards


def test_folders_are_absolute_because_jobs_name_texts_from_folders_of_their_own():
    """Texts under a relative folder were found by no job, and each got a whole GPU without a word."""
    options = run_parser().parse_args(["runs", "--trace", "t.csv", "--root", "root"])
    assert options.out == Path("runs").resolve() and options.root == Path("root").resolve()
    assert options.out.is_absolute()


def test_a_user_informed_that_a_job_is_too_large_requests_a_whole_gpu(trace: Path):
    job = plan(trace, compress=60, gpus=2)[0]
    assert alone(job) == ["#SBATCH --gpus=1", "#RAD policy=exclusive"]
