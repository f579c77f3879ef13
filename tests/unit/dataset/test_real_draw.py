"""Real models that teach and real models that judge stay apart."""

from __future__ import annotations

from itertools import islice

from gpumemnet.learning.dataset import real_draw
from gpumemnet.learning.dataset.store import HELDOUT_ROWS, read_records


def names(configurations: list[real_draw.Configuration]) -> set[str]:
    return {config.arch["name"] for config in configurations}


def test_no_name_both_teaches_and_judges() -> None:
    taught = names(list(real_draw.trained_configurations(1)))
    judged = names(real_draw.heldout_configurations())
    assert len(taught) >= 100 and len(judged) >= 60
    assert not taught & judged


def test_more_rounds_change_nothing_of_the_first() -> None:
    assert list(islice(real_draw.trained_configurations(3), 200)) == list(
        islice(real_draw.trained_configurations(6), 200)
    )


def test_the_measured_held_out_rows_are_those_that_are_drawn() -> None:
    drawn = {config.index: config.to_json() for config in real_draw.heldout_configurations()}
    measured = list(read_records(HELDOUT_ROWS))
    assert len(measured) > 180
    for row in measured:
        wanted = drawn[row["index"]]
        assert {key: row.get(key, 0) for key in wanted} == wanted
