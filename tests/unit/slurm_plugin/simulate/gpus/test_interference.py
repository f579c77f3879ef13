"""The model of slowdowns against what was measured."""

from __future__ import annotations

import csv
import json
import statistics
from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import CHECKOUT

from slurm_plugin.simulate.gpus.interference import (
    LONGEST_SLOWDOWN,
    SLICED,
    TYPICAL_KERNEL_S,
    Load,
    fair_level,
    power_w,
    reach,
    slowdowns,
    together,
)
from slurm_plugin.simulate.traces.workloads import measured

TABLE = CHECKOUT / "gpumemnet" / "data" / "interference_h200.csv"
RESULTS = CHECKOUT / "tests" / "gpu" / "results" / "h200x2"
LOADS = st.builds(Load, smact=st.floats(0, 0.95), busy=st.floats(0.02, 1), duty=st.floats(0, 1))


@pytest.fixture(scope="module")
def groups() -> list[list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    for line in csv.DictReader(TABLE.read_text().splitlines()):
        if line["sharing"] == "mps":
            found[line["group"]].append(line)
    return list(found.values())


def load(line: dict[str, str]) -> Load:
    busy, kernels = float(line["alone_busy"]), float(line["kernels"] or 0)
    return Load(
        smact=float(line["alone_smact"]),
        busy=busy,
        duty=float(line["duty"]),
        kernel_s=busy * float(line["alone_step_s"]) / kernels if kernels else TYPICAL_KERNEL_S,
    )


def test_it_shows_what_was_measured(groups: list[list[dict[str, str]]]) -> None:
    errors = [
        abs(factor / float(line["slowdown"]) - 1)
        for group in groups
        if len(group) > 1
        for factor, line in zip(slowdowns([load(line) for line in group]), group, strict=True)
    ]
    assert len(errors) > 800
    assert statistics.median(errors) < 0.085
    assert statistics.quantiles(errors, n=10)[8] < 0.35


def test_the_activity_of_a_group_and_its_power(groups: list[list[dict[str, str]]]) -> None:
    smact, watts = [], []
    for group in groups:
        loads = [load(line) for line in group]
        smact.append(abs(together(loads, slowdowns(loads)) - float(group[0]["group_smact"])))
        watts.append(abs(power_w(float(group[0]["group_smact"])) - float(group[0]["group_power_w"])))
    assert statistics.fmean(smact) < 0.06
    assert statistics.fmean(watts) < 45


def test_a_crowded_gpu_does_the_work_that_was_measured(groups: list[list[dict[str, str]]]) -> None:
    """Sum of SM activity alone over slowdown: what the GPU gets done. It hardly depends on which jobs these are."""
    errors = []
    for group in groups:
        loads = [load(line) for line in group]
        if len(group) < 2 or sum(one.mean_smact for one in loads) < 1.0:
            continue
        done = together(loads, slowdowns(loads))
        measured = sum(
            one.mean_smact / float(line["slowdown"]) for one, line in zip(loads, group, strict=True)
        )
        errors.append(abs(done / measured - 1))
    assert len(errors) > 100
    assert statistics.median(errors) < 0.03
    assert statistics.quantiles(errors, n=10)[8] < 0.1


@given(st.lists(LOADS, min_size=1, max_size=8), LOADS)
def test_company_never_makes_a_gpu_do_less(loads: list[Load], another: Load) -> None:
    before, after = slowdowns(loads), slowdowns([*loads, another])
    work = [min(one.mean_smact, one.busy * one.duty * one.intensity) for one in loads]
    assert all(factor >= 1.0 for factor in [*before, *after])
    assert 0.0 <= together(loads, before) <= 1.0
    assert together([*loads, another], after) >= reach(sum(work), max(work)) - 2e-3


def test_a_neighbour_that_does_nothing_slows_no_job() -> None:
    busy = Load(smact=0.95, busy=1.0)
    assert slowdowns([busy, Load(smact=0.0, busy=0.0)]) == [1.0, 1.0]
    assert slowdowns([]) == []
    assert slowdowns([busy]) == [1.0]


def test_a_small_kernel_waits_behind_large_ones_but_does_not_starve() -> None:
    large, small = Load(smact=0.95, busy=1.0), Load(smact=0.05, busy=1.0)
    first, second = slowdowns([large, small])
    assert first < 1.1 < second < LONGEST_SLOWDOWN


FULL = Load(smact=0.8, busy=0.98)
WIDE = measured()["xlnet_large_cased_2"].alone(gpus=2, duty=1.0)
"""XLNet on two GPUs, on that which gathers its gradients."""


def test_each_gradient_waits_for_the_mps_server() -> None:
    """Two H200s, four trainings on each: what is handed over tensor by tensor, and what NCCL adds up."""
    found = json.loads((RESULTS / "two_gpu_jobs_copies.json").read_text())["speeds"]["apart"]
    by_copies = float(found["both_alone"]) / float(found["both"])
    found = json.loads((RESULTS / "two_gpu_jobs_nccl.json").read_text())["nccl"]["apart"]
    by_nccl = found["alone"] / found["both"]
    assert slowdowns([WIDE, *[FULL] * 4])[0] == pytest.approx(by_copies, rel=0.1)
    assert slowdowns([replace(WIDE, exchanges_per_s=0.0), *[FULL] * 4])[0] == pytest.approx(by_nccl, rel=0.1)


def test_a_job_that_takes_turns_waits_for_the_server_and_not_for_each_of_its_clients() -> None:
    """Replayed: steps of 1.42 s for 0.26 next to three trainings that fill the GPU, and next to five."""
    few, many = (slowdowns([WIDE, *[FULL] * count])[0] for count in (1, 5))
    assert few == pytest.approx(many, rel=0.03) == pytest.approx(1.42 / 0.26, rel=0.1)
    calm = Load(smact=0.02, busy=0.04)
    assert slowdowns([WIDE, calm])[1] == 1.0, "both fit"
    assert slowdowns([WIDE]) == [1.0]


def test_two_jobs_that_take_turns_wait_for_each_other() -> None:
    """Replayed without any job under MPS: GPT-2 large 1.55 times as long, XLNet base 2.9 times."""
    base, gpt2 = (measured()[name].alone(gpus=2, duty=1.0) for name in ("xlnet_base_cased_2", "gpt2_large_2"))
    assert slowdowns([base, gpt2]) == [pytest.approx(2.9, rel=0.2), pytest.approx(1.55, rel=0.35)]


def test_clients_work_in_the_time_that_is_left_and_their_pauses_come_first() -> None:
    full, paced = FULL, Load(smact=0.8, busy=0.98, duty=0.34)
    assert 1.1 < slowdowns([WIDE, full])[1] < 1.3
    assert slowdowns([WIDE, paced])[1] == 1.0, "it waits for data for two thirds of its time"
    slow = replace(WIDE, exchanges_per_s=0.0)
    assert slowdowns([slow, full])[1] > slowdowns([replace(slow, elsewhere=5.0), full])[1], (
        "a job that waits on another GPU takes less of this one"
    )


def test_clients_of_a_full_server_have_what_a_job_of_two_gpus_leaves() -> None:
    """Two H200s, XLNet large under NCCL next to four trainings on each: these have 0.46 of what they had without it."""
    found = json.loads((RESULTS / "two_gpu_jobs_nccl.json").read_text())["nccl"]["apart"]
    kept = sum(found["beside"]) / sum(found["beside_without"])
    alongside, without = (
        slowdowns(loads)[-1] for loads in ([replace(WIDE, exchanges_per_s=0.0), *[FULL] * 4], [FULL] * 4)
    )
    assert without / alongside == pytest.approx(kept, abs=0.15)


def turning(busy: float, duty: float = 1.0) -> Load:
    return Load(smact=0.8 * busy, busy=busy, duty=duty, sliced=True)


def test_outside_of_mps_a_job_of_low_activity_waits_for_no_job_and_the_others_alike() -> None:
    """Measured without MPS: ResNet-18 on CIFAR (0.26) 1.04, VGG and MobileNet 3.03 and 3.01; pairs 2.2."""
    assert slowdowns([turning(0.26), turning(1.0), turning(1.0)]) == [
        1.0,
        pytest.approx(3.03, rel=0.05),
        pytest.approx(3.01, rel=0.05),
    ]
    assert slowdowns([turning(1.0), turning(1.0)]) == [pytest.approx(2.2, rel=0.05)] * 2
    assert slowdowns([turning(0.4), turning(0.4)]) == [1.0, 1.0]
    assert slowdowns([turning(1.0)]) == [1.0], "no job to take turns with"
    assert turning(1.0).turns and WIDE.turns and not FULL.turns
    paced = [turning(1.0, duty=0.34)] * 9
    assert slowdowns(paced) == [pytest.approx(9 * 0.34 / SLICED)] * 9


def test_the_law_of_turns_is_near_what_was_measured_without_mps() -> None:
    """Median and P90 of the errors of 168 trainings side by side; a straight line came to 6 and 14 %."""
    lines = defaultdict(list)
    with TABLE.open() as file:
        for line in csv.DictReader(file):
            if line["sharing"] == "time-sliced":
                lines[line["group"]].append(line)
    off = sorted(
        abs(said / float(line["slowdown"]) - 1)
        for group in lines.values()
        if len(group) > 1
        for line, said in zip(
            group,
            slowdowns([turning(float(each["alone_busy"]), float(each["duty"])) for each in group]),
            strict=True,
        )
    )
    assert len(off) == 168
    assert off[84] < 0.02 and off[151] < 0.10


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.floats(0.1, 1))
def test_a_fair_level_gives_away_what_there_is_and_no_more(requested: list[float], space: float) -> None:
    level = fair_level(requested, space)
    given_away = sum(min(one, level) for one in requested)
    assert given_away <= space + 1e-9
    assert level == 1.0 or given_away == pytest.approx(space)


@given(st.lists(LOADS.map(lambda load: replace(load, sliced=True)), min_size=1, max_size=8))
def test_turns_never_make_any_job_faster_and_never_give_away_more_than_the_gpu(loads: list[Load]) -> None:
    found = slowdowns(loads)
    assert min(found) >= 1.0
    taken = sum(load.busy * load.duty / factor for load, factor in zip(loads, found, strict=True))
    assert taken <= 1.0 + 1e-9


def test_on_a_full_gpu_short_kernels_come_no_sooner_than_long_ones() -> None:
    """Replayed: sixteen trainings on one GPU, kernels of 5 and of 160 microseconds: 1,500 to 3,000 a second each."""
    large = [Load(smact=0.9, busy=1.0, duty=0.4, kernel_s=160e-6)] * 5
    small = [Load(smact=0.11, busy=0.22, duty=0.45, kernel_s=6e-6)] * 10
    found = slowdowns([*large, *small])
    rates = [
        load.busy * load.duty / load.kernel_s / factor
        for load, factor in zip([*large, *small], found, strict=True)
    ]
    assert found[-1] > 2 * found[0], "the small ones wait"
    assert max(rates) < 3 * min(rates), "and still none of them gets much more done than another"
