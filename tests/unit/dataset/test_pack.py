"""Raw records become the file that is kept; a file that is kept can be packed again with more."""

from __future__ import annotations

from typing import Any

from gpumemnet.learning.dataset.pack import pack
from gpumemnet.units import MIB

SESSION = {"session": True, "gpu": "NVIDIA H200", "torch": "2.11", "libraries": {"timm": "1.0"}}


def raw(index: int, **values: Any) -> dict[str, Any]:
    row = {"seed": 1, "index": index, "variant": 0, "outcome": "ok", "alone": False, "neighbours": 3}
    row |= {"train_s": 1.0, "step_time_s": 0.1, "base_bytes": 700 * MIB, "num_alloc_retries": 0}
    return row | values


def test_rows_carry_the_versions_of_their_session() -> None:
    (row,) = pack([[SESSION, raw(0)]])
    assert row["libraries"] == {"timm": "1.0"} and row["gpu"] == "NVIDIA H200"
    assert row["step_time_s"] is None and "neighbours" not in row


def test_what_was_packed_before_stays_as_it_is_next_to_new_rows() -> None:
    before = pack([[SESSION, raw(0), raw(1, alone=True, smact_pct=40.0)]])
    assert before[1]["step_time_s"] == 0.1 and before[1]["smact_pct"] == 40.0
    after = pack([before, [SESSION | {"torch": "2.12"}, raw(2)]])
    assert after[:2] == before
    assert [row["torch"] for row in after] == ["2.11", "2.11", "2.12"]


def test_failed_and_disturbed_runs_are_left_out() -> None:
    disturbed = raw(1, num_alloc_retries=2)
    inherited = raw(2, runs_before=3, base_bytes=1100 * MIB)
    skipped = {"seed": 1, "index": 3, "outcome": "skipped", "rough_need_bytes": 1}
    assert pack([[SESSION, raw(0, outcome="error"), disturbed, inherited, skipped]]) == []
