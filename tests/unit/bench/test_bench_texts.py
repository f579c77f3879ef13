"""The table of texts judges each answer by what is right."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from paths import CHECKOUT

sys.path.insert(0, str(CHECKOUT / "bench/estimator"))
from texts_table import Answer, TextCase, answer_to, cases, verdict_of

NUMBERS = Answer(0, estimate=1000, booked=1400, bound=1500)


@pytest.mark.parametrize(
    ("answer", "right", "verdict"),
    [
        (NUMBERS, "1200", "answered, right"),
        (NUMBERS, "1300", "below, booked enough"),
        (NUMBERS, "1600", "below"),
        (NUMBERS, "700", "too high"),
        (NUMBERS, "over 700", "answered, right"),
        (NUMBERS, "refused", "answered, should be refused"),
        (NUMBERS, "", "answered"),
        (Answer(2, line="x: cut off; print it again"), "900", "refused, with the way out"),
        (Answer(2, line="x: cut off; print it again"), "refused", "refused"),
        (Answer(2, line="x: broken"), "", "refused, no help"),
        (Answer(3, line="internal error"), "900", "crash"),
    ],
)
def test_an_answer_is_judged_by_the_need(answer: Answer, right: str, verdict: str) -> None:
    assert verdict_of(answer, right) == verdict


def test_a_list_has_files_options_and_what_is_right() -> None:
    listed = "# comment\na.txt\t--batch-size 8\t900\n\nb.txt\n"
    assert cases(listed) == [TextCase("a.txt", "--batch-size 8", "900"), TextCase("b.txt", "", "")]


def test_rad_estimate_is_started_as_a_user_starts_it(tmp_path: Path) -> None:
    text = tmp_path / "model.txt"
    text.write_text("Net(\n  (fc): Linear(in_features=8, out_features=8)\n)\n")
    answer = answer_to(text, ["--batch-size", "4"])
    assert (answer.status, answer.line) == (0, "")
    assert 0 < answer.estimate <= answer.booked <= answer.bound
    text.write_text("Net(\n")
    assert "never closed" in answer_to(text, ["--batch-size", "4"]).line
