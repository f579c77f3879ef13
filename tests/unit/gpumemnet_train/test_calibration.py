# ruff: noqa: E402 - what follows needs libraries that only the train extra brings
"""Which rows calibrate which kind of text, and that quantiles hold on rows that they were not found on."""

from __future__ import annotations

from dataclasses import replace

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("sklearn")

from gpumemnet.estimators import conformal
from gpumemnet.learning.train import correction
from gpumemnet.learning.train.correction import RowArrays
from gpumemnet.learning.train.rows import lineage

BOUND = conformal.LEVELS.index(conformal.CONFIDENCE)


def rows(kinds: list[str], real: list[bool]) -> RowArrays:
    count = len(kinds)
    some = np.ones(count)
    return RowArrays(
        features=np.zeros((count, 1)), modelled_mib=some, base_mib=some, peak_mib=some, weight=some,
        usual=some > 0, group=[f"real/{at}" for at in range(count)], kind=kinds,
        scale=some, real=np.array(real), shrink=some, telling=some > 0, measured=some > 0,
    )  # fmt: skip


def found(parts: list[tuple[str, bool, float, int]]) -> dict[str, list[float]]:
    """Calibrate on parts of (kind, real or not, their one error, how many rows)."""
    kinds = [kind for kind, _, _, count in parts for _ in range(count)]
    real = [each for _, each, _, count in parts for _ in range(count)]
    error = np.array([each for _, _, each, count in parts for _ in range(count)])
    return correction.calibrated(rows(kinds, real), error, np.ones(len(kinds), bool))


def test_enough_real_models_calibrate_their_kind_alone() -> None:
    table = found([("full", True, 0.1, correction.ENOUGH_REAL), ("full", False, 2.0, 500)])
    assert table["full"][BOUND] == pytest.approx(0.1)
    assert table[conformal.ANY][BOUND] == pytest.approx(2.0)


def test_too_few_real_models_are_joined_by_the_generated_ones() -> None:
    table = found([("full", True, 0.1, correction.ENOUGH_REAL - 1), ("full", False, 2.0, 500)])
    assert table["full"][BOUND] == pytest.approx(2.0)


def test_measured_models_are_above_no_more_often_than_traces_are() -> None:
    count = correction.ENOUGH_REAL
    data = rows(["full"] * 11 * count, [True] * 11 * count)
    measured = np.arange(11 * count) < count
    error = np.where(measured, 0.5, 0.1)
    everything = np.ones(11 * count, bool)
    assert correction.calibrated(data, error, everything)["full"][0] == pytest.approx(0.1)
    found = correction.calibrated(replace(data, measured=measured), error, everything)["full"]
    assert found == pytest.approx([0.5] * len(found))


def test_a_rare_kind_is_never_surer_than_all_rows_together() -> None:
    least = correction.LEAST_TO_CALIBRATE
    table = found([("rare", False, 0.1, least), ("odd", False, 3.0, least), ("full", False, 0.5, 1000)])
    assert table["rare"][BOUND] == pytest.approx(0.5)
    assert table["odd"][BOUND] == pytest.approx(3.0)
    assert "lone" not in found([("lone", False, 0.1, least - 1), ("full", False, 0.5, 100)])


def test_quantiles_hold_on_rows_that_they_were_not_found_on() -> None:
    random = np.random.RandomState(5)
    widths = conformal.quantiles(random.laplace(0.0, 0.1, 20_000).tolist())
    fresh = random.laplace(0.0, 0.1, 20_000)
    for level, width in zip(conformal.LEVELS, widths, strict=True):
        assert (fresh <= width).mean() == pytest.approx(level, abs=0.015)


def test_relatives_are_left_out_together() -> None:
    assert lineage("real/timm:fastvit_t12") == lineage("real/timm:fastvit_sa12") == "real/fastvit"
    assert lineage("real/timm:swiftformer_s") == lineage("real/transformers:swiftformer")
    assert lineage("transformer/decoder") == "transformer/decoder"


def test_errors_are_ranked_as_multiples_of_what_each_text_lets_expect() -> None:
    count = correction.ENOUGH_REAL
    data = rows(["full"] * 2 * count, [True] * 2 * count)
    half = np.arange(2 * count) < count
    error = np.where(half, 0.1, 0.2)
    everything = np.ones(2 * count, bool)
    known = replace(data, scale=np.where(half, 0.5, 1.0))
    assert correction.calibrated(known, error, everything)["full"][0] == pytest.approx(0.2)
    assert correction.calibrated(data, error, everything)["full"][0] == pytest.approx(0.2)
    assert correction.calibrated(data, error, half)["full"][BOUND] == pytest.approx(0.1)
    assert correction.calibrated(known, error, half)["full"][BOUND] == pytest.approx(0.2)


def test_neither_lineages_nor_runs_are_above_a_quantile_more_often_than_its_share() -> None:
    """One lineage of many runs, a tenth of which err: lineages alone would book nothing for them."""
    count = correction.ENOUGH_REAL
    data = replace(rows(["full"] * 2 * count, [True] * 2 * count), group=["real/many"] * count + [
        f"real/{at}" for at in range(count)
    ])  # fmt: skip
    error = np.where(np.arange(2 * count) < count // 5, 0.5, 0.1)
    table = correction.calibrated(data, error, np.ones(2 * count, bool))["full"]
    assert table[conformal.LEVELS.index(0.95)] == pytest.approx(0.5)
