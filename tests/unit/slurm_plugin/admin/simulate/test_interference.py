"""The model of slowdowns against what was measured."""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import CHECKOUT

from slurm_plugin.admin.simulate.interference import Load, power_w, slowdowns, together

TABLE = CHECKOUT / "gpumemnet" / "data" / "interference_h200.csv"
LOADS = st.builds(Load, smact=st.floats(0, 0.95), busy=st.floats(0.02, 1), duty=st.floats(0, 1))


@pytest.fixture(scope="module")
def groups() -> list[list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    for line in csv.DictReader(TABLE.read_text().splitlines()):
        if line["sharing"] == "mps":
            found[line["group"]].append(line)
    return list(found.values())


def load(line: dict[str, str]) -> Load:
    return Load(smact=float(line["alone_smact"]), busy=float(line["alone_busy"]), duty=float(line["duty"]))


def test_it_tells_what_was_measured(groups: list[list[dict[str, str]]]) -> None:
    errors = [
        abs(factor / float(line["slowdown"]) - 1)
        for group in groups
        if len(group) > 1
        for factor, line in zip(slowdowns([load(line) for line in group]), group, strict=True)
    ]
    assert len(errors) > 800
    assert statistics.median(errors) < 0.13
    assert statistics.quantiles(errors, n=10)[8] < 0.45


def test_the_activity_of_a_group_and_its_power(groups: list[list[dict[str, str]]]) -> None:
    smact, watts = [], []
    for group in groups:
        loads = [load(line) for line in group]
        smact.append(abs(together(loads, slowdowns(loads)) - float(group[0]["group_smact"])))
        watts.append(abs(power_w(float(group[0]["group_smact"])) - float(group[0]["group_power_w"])))
    assert statistics.fmean(smact) < 0.06
    assert statistics.fmean(watts) < 45


@given(st.lists(LOADS, min_size=1, max_size=8), LOADS)
def test_company_never_helps(loads: list[Load], another: Load) -> None:
    before = slowdowns(loads)
    after = slowdowns([*loads, another])
    assert all(factor >= 1.0 for factor in before)
    assert all(later >= earlier - 1e-9 for earlier, later in zip(before, after, strict=False))
    assert 0.0 <= together(loads, before) <= 1.0
