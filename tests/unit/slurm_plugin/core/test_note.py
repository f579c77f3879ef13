from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.note import Note, format_note, read_note
from slurm_plugin.core.turn import Turn
from slurm_plugin.core.units import MIB

SIZES = st.none() | st.integers(0, 10**6).map(lambda mib: mib * MIB)


@given(
    st.builds(
        Note,
        event=st.sampled_from(["recovered", "put-back", "ended"]),
        start_in_s=st.none() | st.integers(0, 10**6),
        restart=st.none() | st.integers(0, 100),
        estimate_bytes=SIZES,
        peak_bytes=SIZES,
        ran_s=st.none() | st.integers(0, 10**8),
        turn=st.none()
        | st.builds(
            Turn,
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
