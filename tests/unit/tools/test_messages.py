"""The page of messages is made when it is read, so it cannot be out of date; here: that it leaves none out."""

from __future__ import annotations

import inspect
import re

import pytest
from paths import CHECKOUT

from slurm_plugin.core.booking import messages as words
from slurm_plugin.core.records.submission import MemoryEstimate
from slurm_plugin.core.units import GIB
from tools import messages


def shape(text: str) -> str:
    """Return a message with every number as 0, as each document has other ones."""
    return re.sub(r"\d+(?:\.\d+)?", "0", text)


def test_users_read_the_words_of_messages_that_exist() -> None:
    """In user.md as parts of a line, in troubleshooting.md as lines of which `...` leaves out the rest."""
    said = shape(messages.page())
    user = (CHECKOUT / "docs" / "user.md").read_text(encoding="utf-8")
    table = user.partition("| words | meaning |\n|---|---|\n")[2].partition("\n\n")[0]
    parts = [row.split("|")[1].strip().replace("(...)", "(") for row in table.splitlines()]
    page = (CHECKOUT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    lines = [line.removesuffix("...").strip() for line in re.findall(r"`(RAD: [^`]*)`", page)]
    assert len(parts) > 4 and len(lines) > 8
    assert [text for text in (*parts, *lines) if shape(text) not in said] == []


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


def test_the_line_of_a_job_distinguishes_need_and_booking() -> None:
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
        ("rad.toml", "unknown key <where><name>; did you mean <where><nearest>?"),
        ("rad.toml", "<key> is 0; one shard is at least 1 MiB"),
        ("radd's log", "rad.toml read again: mode <...>"),
        ("rad doctor", "salloc and srun reach a node before its Prolog has run"),
        (
            "rad doctor",  # two texts of one name in one function
            "not found: on a controller, job_submit.lua cannot reach radd and submits every job unchanged; "
            "apt install lua-posix, or dnf install lua-posix",
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
