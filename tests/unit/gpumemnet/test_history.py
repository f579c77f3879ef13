from __future__ import annotations

from pathlib import Path

from gpumemnet.history import History
from gpumemnet.units import GIB, MIB

RUN = {"user": "ada", "profile_key": "k1", "gpu": "h200"}


def test_the_highest_peak_of_the_same_job_comes_back_with_a_margin(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    assert history.observed(**RUN) is None
    history.record(**RUN, estimate_bytes=9 * GIB, peak_bytes=10 * GIB)
    history.record(**RUN, estimate_bytes=9 * GIB, peak_bytes=8 * GIB)
    seen = history.observed(**RUN)
    assert seen is not None
    assert (seen.peak_bytes, seen.runs) == (10 * GIB, 2)
    assert seen.upper_bytes == int(10 * GIB * 1.05)
    assert history.observed(**{**RUN, "user": "bob"}) is None


def test_it_is_there_after_a_restart_and_half_a_line_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    History(path).record(**RUN, estimate_bytes=GIB, peak_bytes=GIB)
    with path.open("a") as file:
        file.write(
            '[1]\n{"user":"ada","profile":"k1","gpu":"h200","peak":1e999,"estimate":1}\n{"user":"ada","pro'
        )
    seen = History(path).observed(**RUN)
    assert seen is not None
    assert (seen.runs, seen.upper_bytes) == (1, GIB + 256 * MIB)
