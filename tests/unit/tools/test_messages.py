"""The page of messages is made when it is read, so it cannot be out of date; here: that it leaves none out."""

from __future__ import annotations

import inspect

import pytest

from slurm_plugin.core.booking import messages as words
from slurm_plugin.core.records.submission import MemoryEstimate
from slurm_plugin.core.units import GIB
from tools import messages


def test_every_line_of_a_submission_is_shown_by_example() -> None:
    lines = {
        name
        for name, made in inspect.getmembers(words, inspect.isfunction)
        if made.__module__ == words.__name__
    }
    shown = {function.__name__ for function, *_ in messages.EXAMPLES}
    parts_of_others = {"may_need"}
    assert {name for name in lines if not name.startswith("_")} - parts_of_others == shown
    assert any(words.may_need(38 * GIB, 39 * GIB) in text for *_, text in messages.EXAMPLES)


def test_what_it_says_in_the_same_words_each_time_is_shown() -> None:
    always = {text for text in vars(words).values() if isinstance(text, str) and text.startswith("RAD: ")}
    assert always <= {text for _, text in messages.LINES}


def test_a_part_of_a_message_is_no_message() -> None:
    found = next(each for each in messages.PARTS if each.title.startswith("Other messages"))
    texts = [text for text, _ in messages.messages_of(found)]
    assert any(text.startswith("RAD: <where>no model summary") for text in texts)
    assert "RAD: " not in texts


def test_the_line_of_a_job_distinguishes_need_and_reservation() -> None:
    estimate = MemoryEstimate(
        estimate_bytes=int(13.6 * GIB), upper_bytes=15 * GIB, confidence=0.99, source="rad"
    )
    line = words.reserves(15 * GIB, estimate, share=0.99)
    assert line == "RAD: estimated 13.6 GiB; booked 15.0 GiB (99th percentile)"


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("#RAD lines", "#RAD below the first command is not read; move it above line <command_line>"),
        ("Model summaries", "no such file; check the path"),
        ("rad-estimate", "--ask and --config: <why>; leave them out"),
        ("rad.toml", "<path>: ends in the middle of a line"),
        ("radd's log", "rad.toml read again: mode <...>"),
        ("rad doctor", "salloc and srun reach a node before its Prolog has run"),
        (
            "rad doctor",  # two texts of one name in one function
            "not found: on a controller, job_submit.lua cannot reach radd and leaves every job as it is; "
            "apt install lua-socket, or dnf install lua-posix",
        ),
        ("Other messages", "RAD: <where>no model summary was read, so the GPU memory need is unknown"),
    ],
)
def test_messages_are_found_where_they_stand(part: str, line: str) -> None:
    found = next(each for each in messages.PARTS if each.title.startswith(part))
    assert line in [text for text, _ in messages.messages_of(found)]


def test_no_kind_of_message_is_empty_and_the_page_is_a_table() -> None:
    for part in messages.PARTS:
        assert len(messages.messages_of(part)) >= 2, part.title
    page = messages.page()
    assert "radd did not answer" in page
    rows = [line for line in page.splitlines() if line.startswith(("| `", "| A "))]
    assert len(rows) > 150 and all(line.replace("\\|", "").count("|") == 3 for line in rows)
