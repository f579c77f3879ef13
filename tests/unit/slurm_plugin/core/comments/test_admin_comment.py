from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import KEY, signed
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.comments.admin_comment import Note, format_note, read_note, read_signed, signed_note
from slurm_plugin.core.comments.signed_comment import COMMENT_LIMIT, sign, signed_booking
from slurm_plugin.core.records.queue_position import QueuePosition
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.units import MIB

SIZES = st.none() | st.integers(0, 10**6).map(lambda mib: mib * MIB)


@given(
    st.builds(
        Note,
        event=st.sampled_from(["recovered", "requeued", "ended"]),
        start_in_s=st.none() | st.integers(0, 10**6),
        restart=st.none() | st.integers(0, 100),
        estimate_bytes=SIZES,
        peak_bytes=SIZES,
        ran_s=st.none() | st.integers(0, 10**8),
        position=st.none()
        | st.builds(
            QueuePosition,
            submitted_s=st.integers(0, 10**11),
            accrues_s=st.none() | st.integers(0, 10**11),
            priority=st.integers(0, 2**32),
            nice=st.integers(-(2**31), 2**31),
        ),
        server_ends=st.none() | st.integers(0, 20),
        detail=st.text(alphabet="ab -=%", max_size=40).map(lambda text: " ".join(text.split())),
    )
)
def test_a_note_comes_back(note: Note) -> None:
    assert read_note(format_note(note)) == note


def test_a_long_detail_is_cut_to_one_line() -> None:
    text = format_note(Note(event="ended", detail="x\ny " * 500))
    assert len(text) < 400 and "\n" not in text


@pytest.mark.parametrize("text", ["", "rad:", "rad: danced", "an admin's own words", "rad: ended peak_mib=x"])
def test_other_text_is_no_note(text: str) -> None:
    assert read_note(text) is None


SIGNED = Note(
    event="requeued", start_in_s=5, restart=2, position=QueuePosition(submitted_s=1, accrues_s=1, priority=9)
)
WHOSE = {"job_id": 7, "user_id": 1000}


@given(detail=st.text(max_size=500))
def test_a_signed_note_comes_back_and_fits(detail: str) -> None:
    text = signed_note(replace(SIGNED, detail=detail), **WHOSE, key=KEY)
    assert len(text.encode()) <= COMMENT_LIMIT, "Slurm would cut the signature off"
    found = read_signed(text, **WHOSE, key=KEY)
    shown = read_note(text)
    assert found is not None and found == shown and replace(found, detail="") == SIGNED


@pytest.mark.parametrize(
    ("text", "whose", "key"),
    [
        (signed(SIGNED), {"job_id": 8}, KEY),
        (signed(SIGNED), {"user_id": 1001}, KEY),
        (signed(SIGNED), {}, b"k" * 32),
        (signed(SIGNED), {}, None),
        (signed(SIGNED).replace("restart=2", "restart=3"), {}, KEY),
        (signed(SIGNED).replace("priority=9", "priority=90"), {}, KEY),
        (signed(SIGNED) + " ", {}, KEY),
        (f"x\n{signed(SIGNED)}", {}, KEY),
        (f"{signed(SIGNED)}\n", {}, KEY),
        (format_note(SIGNED), {}, KEY),
        (f"{format_note(SIGNED)} - sig:{'0' * 16}", {}, KEY),
        (signed_note(replace(SIGNED, restart=None), **WHOSE, key=KEY), {}, KEY),
        (signed_note(SIGNED, **WHOSE, key=None), {}, KEY),
    ],
    ids=[
        *("another job's", "another owner's", "under another key", "no key here"),
        *("of another restart", "changed", "a blank behind it", "a line before it", "a line end behind it"),
        *("not signed", "guessed", "of no restart", "written without a key"),
    ],
)
def test_what_was_not_signed_for_this_job_has_no_effect(
    text: str, whose: dict[str, int], key: bytes | None
) -> None:
    assert read_signed(text, **{**WHOSE, **whose}, key=key) is None
    assert text[0] == "x" or text[-1].isspace() or read_note(text) is not None, "it is shown all the same"


def test_a_booking_s_code_signs_no_note_and_a_note_s_no_booking() -> None:
    assert sign("note|7|1000|rad: woken", KEY) != sign("rad2|1000|note|rad: woken", KEY)
    booking = signed_booking(Booking(kind="shared", gpus=1), user_id=1000, key=KEY)
    assert read_signed(f"rad: woken restart=1 - sig:{booking[-16:]}", **WHOSE, key=KEY) is None
