from __future__ import annotations

import json
from typing import get_args, get_type_hints

from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.logs.events import Entry, EventKind, LogEvent, as_text, from_line, to_line
from slurm_plugin.core.records.node import Outcome
from slurm_plugin.core.text import one_line

ENTRIES = st.builds(
    Entry,
    time_s=st.floats(0, 4e9).map(lambda s: round(s, 3)),
    hook=st.sampled_from(["prolog", "epilog"]),
    job_id=st.integers(0, 2**31),
    restart=st.integers(0, 99),
    after_ms=st.integers(0, 9000),
    event=st.builds(
        LogEvent,
        kind=st.sampled_from(EventKind),
        detail=st.text(max_size=4000),
        facts=st.dictionaries(
            st.sampled_from(["policy", "peak_bytes", "v", "job", "pattern"]),
            st.none() | st.integers() | st.text(max_size=500),
        ),
    ),
)


@given(ENTRIES)
def test_whatever_happened_is_one_bounded_line_of_printable_ascii(entry: Entry) -> None:
    line = to_line(entry)
    assert len(line) < 16_000
    assert line.isascii() and line.decode().isprintable()
    assert as_text(entry).isprintable()


@given(ENTRIES)
def test_a_line_read_back_says_the_same(entry: Entry) -> None:
    once = from_line(to_line(entry))
    assert once is not None
    assert from_line(to_line(once)) == once
    assert (once.job_id, once.event.kind) == (entry.job_id, entry.event.kind), (
        "facts cannot pose as its own names"
    )
    assert as_text(once) == as_text(entry)


def test_the_form_of_a_line_is_the_documented_one() -> None:
    event = LogEvent(kind=EventKind.PLACED, detail="GPU-a", facts={"policy": "magm", "gpus": ("GPU-a",)})
    line = to_line(Entry(time_s=1.25, hook="prolog", job_id=12, restart=1, after_ms=43, event=event))
    assert json.loads(line) == {
        "v": 1,
        "time_s": 1.25,
        "hook": "prolog",
        "job": 12,
        "restart": 1,
        "after_ms": 43,
        "event": "placed",
        "detail": "GPU-a",
        "policy": "magm",
        "gpus": ["GPU-a"],
    }


@given(st.text(), st.integers(1, 400))
def test_one_line_is_printable_and_bounded(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert line.isprintable() and len(line) <= limit


def test_one_line_keeps_words_in_any_language() -> None:
    assert one_line("  Speicher überfüllt:\r\n 显存不足 ", 80) == "Speicher überfüllt: 显存不足"
    assert one_line("\x1b]0;x\x07 \x9b31m \u202e \ud800 \u2028end", 80) == "?]0;x? ?31m ? ? end"


def test_each_way_a_job_may_end_has_its_event() -> None:
    kinds = get_args(get_type_hints(Outcome)["kind"])
    assert kinds and set(kinds) <= {kind.value for kind in EventKind}
