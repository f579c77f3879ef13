"""Replays next to their simulation: what is read from a run, and when a simulation counts as near."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from paths import CHECKOUT

sys.path.insert(0, str(CHECKOUT / "bench"))
sys.path.insert(0, str(CHECKOUT / "bench" / "simulation"))
import replayed
import replayed_groups

from slurm_plugin.simulate.gpus.interference import SLICED
from slurm_plugin.simulate.metrics import metrics
from slurm_plugin.slurm.versions import NEWEST


def job(
    name: str, submit_s: float, called_s: float, *, booked_mib: int = 0, gpu: str = "0"
) -> dict[str, Any]:
    return {
        "name": name,
        "workload": "vgg",
        "gpus": 1,
        "planned_submit_s": submit_s,
        "alone_s": 10.0,
        "period_s": 0.1,
        "step_s": 0.01,
        "steps": 100,
        "smact": 0.5,
        "busy": 0.9,
        "memory_mib": 4000,
        "peak_mib": 4000,
        "booked_mib": booked_mib,
        "limit_min": 1,
        "admin_comment": "rad: booked estimate_mib=4100",
        "runs": [
            {
                "gpus": gpu,
                "called_s": called_s,
                "trains_s": called_s + 1,
                "end_s": called_s + 11,
                "outcome": "ok",
            }
        ],
    }


def run(
    policy: str, *jobs: dict[str, Any], slurm: str = "slurm-wlm 24.11.5", **figures: float
) -> dict[str, Any]:
    return {
        "trace": "t",
        "policy": policy,
        "compress": 100.0,
        "first": None,
        "settings": {},
        "repetition": 1,
        "stand_in": False,
        "cut": False,
        "began_s": 0.0,
        "machine": {"slurm": slurm},
        "samples": {
            "gpus": [{"index": 0, "name": "A100", "usable_mib": 40_000, "smact": [None]}],
            "times_s": [11.0],
        },
        "jobs": list(jobs),
        "figures": dict.fromkeys(replayed.FIGURES, 1.0) | {"crashes": 0, "recoveries": 0} | figures,
    }


WHOLE = run("whole", job("a", 0.0, 0.5), job("b", 0.0, 12.0), makespan_s=23.0, mean_completion_s=17.25)


def test_pace_and_start_up_are_read_from_the_run_with_whole_gpus() -> None:
    assert replayed.paces_s(WHOLE) == pytest.approx([0.5])
    assert replayed.alone(WHOLE["jobs"][0], WHOLE["samples"]) == replayed.Alone(1.0, 10.0)
    assert metrics(replayed.simulated(WHOLE, WHOLE))["makespan_s"] == pytest.approx(23.0)


def test_a_job_is_as_active_as_it_was_with_the_gpu_to_itself() -> None:
    """The table's activity is another GPU's: here the job trained from 1.5 to 11.5 s at 0.3."""
    physical_gpu = {"index": 0, "name": "H100", "usable_mib": 80_000, "smact": [0.0, 0.9, 0.2, 0.3, 0.4, 0.9]}
    samples = {"gpus": [physical_gpu], "times_s": [1.0, 1.9, 2.1, 6.0, 11.0, 12.0]}
    seen = replayed.alone(WHOLE["jobs"][0], samples)
    assert seen is not None and seen.smact == pytest.approx(0.3), "whole samples alone count"
    load = replayed._load(WHOLE["jobs"][0], seen)
    assert load.mean_smact == pytest.approx(0.3)
    assert load.intensity == replayed._load(WHOLE["jobs"][0], replayed.Alone(1, 10)).intensity
    busier = physical_gpu | {"index": 1, "smact": [0.0, 0.9, 0.6, 0.7, 0.8, 0.9]}
    two = samples | {"gpus": [physical_gpu, busier]}
    for gpu, active in (("0", 0.3), ("1", 0.7), ("0,1", 0.5)):
        found = replayed.alone(job("a", 0.0, 0.5, gpu=gpu), two)
        assert found is not None and found.smact == pytest.approx(active), "of the GPUs that it had"


def test_by_hand_without_mps_jobs_take_turns() -> None:
    never_waits = {"steps": 10**6}
    shared = [job(name, 0.0, 0.5, booked_mib=8192) | never_waits for name in ("a", "b")]
    slowed = {
        policy: metrics(replayed.simulated(run(policy, *shared), WHOLE))["median_slowdown"]
        for policy in ("hand", "hand-mps")
    }
    busy = replayed._load(shared[0], replayed.Alone(1, 10)).busy
    start_s, work_s = 1.5, 10.0
    took_s = start_s + work_s * busy / (SLICED / 2)
    assert slowed["hand"] == pytest.approx(took_s / (start_s + work_s), rel=0.01)
    assert slowed["hand-mps"] < slowed["hand"]


def test_a_run_is_compared_with_whole_gpus_of_its_own_hour(capsys: pytest.CaptureFixture[str]) -> None:
    slower = run("whole", job("a", 0.0, 0.5), job("b", 0.0, 19.0)) | {"began_s": 9000.0}
    early, late = (run("magm", job("a", 0.0, 0.5)) | {"began_s": at_s} for at_s in (600.0, 8000.0))
    assert replayed._whole(early, [slower, WHOLE, early]) is WHOLE
    assert replayed._whole(late, [WHOLE, slower, late]) is slower
    assert replayed.report([early]) == 1
    assert "no run with whole GPUs" in capsys.readouterr().err


def test_jobs_that_book_shards_share_and_the_status_says_what_is_not_near(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shared = [job(name, 0.0, 0.5, booked_mib=8192) for name in ("a", "b")]
    near = run("magm", *shared, makespan_s=11.5, mean_completion_s=11.5)
    assert replayed.report([WHOLE, near]) == 0
    far = run("hand", *shared, makespan_s=23.0, mean_completion_s=20.0)
    assert replayed.report([WHOLE, far]) == 1
    assert capsys.readouterr().out.count("| no |") == 1


def test_a_run_that_was_cut_off_is_compared_at_its_cut(capsys: pytest.CaptureFixture[str]) -> None:
    began, left = job("a", 0.0, 0.5), job("b", 0.0, 0.5)
    left["runs"][0] |= {"outcome": "killed"}
    cut = run("whole", began, left) | {"cut": True}
    cut["samples"] = cut["samples"] | {"times_s": [12.0]}
    assert replayed.report_cut([cut], [WHOLE, cut]) == 0, "one of two was done, as simulated"
    cut["samples"] = cut["samples"] | {"times_s": [30.0]}
    assert replayed.report_cut([cut], [WHOLE, cut]) == 1
    assert capsys.readouterr().out.count("| yes |") == 1


def test_the_release_of_slurm_is_read() -> None:
    assert replayed.release(run("whole", slurm="slurm-wlm 22.05.8")) == (22, 5, 8)
    assert replayed.release(run("whole", slurm="unknown")) == NEWEST


def test_a_group_is_the_jobs_that_train_while_none_starts_or_ends() -> None:
    """Two share a GPU from 10 to 20 s; the first does 50 steps of 0.1 s in that time, the second all of its own."""
    first, second = job("a", 0.0, 0.0), job("b", 0.0, 9.0)
    first["runs"] = [
        {
            "gpus": "0",
            "called_s": 0.0,
            "trains_s": 1.0,
            "end_s": 30.0,
            "progress": [(10.0, 90), (20.0, 140), (30.0, 240)],
        }
    ]
    second["runs"] = [
        {"gpus": "0", "called_s": 9.0, "trains_s": 10.0, "end_s": 20.0, "progress": [(20.0, 100)]}
    ]
    (group,) = replayed_groups.groups(run("magm", first, second))
    assert [slow for _, slow in group] == pytest.approx([2.0, 1.0])
    assert group[0][0].duty == pytest.approx(0.1)


def test_what_handing_gradients_over_costs_is_read_from_steps() -> None:
    """XLNet large takes 1.26 s for 0.2609 next to a training that fills the GPU which gathers its 411 gradients."""
    wide, full = job("a", 0.0, 0.0, gpu="0,1"), job("b", 0.0, 0.0)
    wide |= {"workload": "xlnet_large_cased_2", "gpus": 2, "step_s": 0.26, "period_s": 0.26}
    full |= {"workload": "BERT_base", "step_s": 0.1}
    wide["runs"][0] |= {"trains_s": 0.0, "end_s": 12.6, "progress": [(1.26 * n, n) for n in range(11)]}
    full["runs"][0] |= {"trains_s": 0.0, "end_s": 12.6, "progress": [(12.6, 60)]}
    (found,) = replayed_groups.handovers(run("magm", wide, full))
    assert found.wait_s == pytest.approx((1.26 - 0.2609) / 411)
    assert found.slowdown == pytest.approx(1.26 / 0.2609)
    assert (found.others, round(found.served, 1)) == (0, 1.0)
    assert found.model == pytest.approx(1 + 0.0026 * 411 / 0.2609, rel=0.05)
    full["runs"][0]["gpus"] = "1"
    (found,) = replayed_groups.handovers(run("magm", wide, full))
    assert found.served == 0.0, "no job is on its first GPU"
    assert found.model < 2.5


@pytest.mark.parametrize("recovery", ["exclusive", "escalate"])
def test_a_job_that_states_too_little_is_simulated_from_what_it_states(recovery: str) -> None:
    small = job("a", 0.0, 0.5, booked_mib=9 * 1024) | {
        "peak_mib": 4000,
        "admin_comment": "rad: recovered estimate_mib=2700 restart=1 - out of GPU memory",
    }
    small["runs"] = [{**small["runs"][0], "outcome": "oom"}, *small["runs"]]
    short = run("magm", small, job("b", 0.0, 12.0, booked_mib=5 * 1024))
    short["settings"] = {"recovery": f'"{recovery}"'}
    found = {one.trace.number: one for one in replayed.simulated(short, WHOLE).jobs}
    assert (found[0].restart, found[1].restart) == (1, 0)
    booking = found[0].booking
    assert booking is not None
    assert booking.kind == ("whole" if recovery == "exclusive" else "shared")


def test_runs_on_other_gpus_are_not_compared() -> None:
    here = run("magm", job("a", 0.0, 0.5, booked_mib=5 * 1024))
    here["samples"] = {"gpus": [{"name": "H100", "usable_mib": 80_000}], "times_s": [11.0]}
    assert replayed.report([WHOLE, here]) == 1
