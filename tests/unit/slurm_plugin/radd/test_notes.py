"""Only what a hook signed for this job and this user has an effect."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.comments.admin_comment import Note, signed_note
from slurm_plugin.core.comments.signed_comment import read_comment, signed_booking
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.radd.notes import signed_in
from slurm_plugin.radd.protocol.messages import Modified

NOTE = Note(event="recovered", start_in_s=3, restart=1, fault="estimate")
BOOKING = Booking(kind="shared", memory_bytes=1 << 30, profile_key="ab12")
ids = st.integers(1, 3)
keys = st.sampled_from([bytes(32), b"k" * 32])


@given(ids, ids, keys, ids, ids, keys, st.text(max_size=10))
def test_a_note_counts_for_its_job_and_user_alone(
    job_id: int, user_id: int, key: bytes, of_job: int, of_user: int, of_key: bytes, words: str
) -> None:
    change = Modified(
        job_id=job_id,
        user_id=user_id,
        comment=read_comment(f"{words} {signed_booking(BOOKING, user_id=of_user, key=of_key)}"),
        admin_comment=signed_note(NOTE, job_id=of_job, user_id=of_user, key=of_key),
    )
    found = signed_in(change, key)
    if (job_id, user_id, key) != (of_job, of_user, of_key):
        assert found is None
    else:
        assert found is not None and (found.note.event, found.note.restart) == ("recovered", 1)
        assert found.booking == BOOKING


@given(st.text(max_size=40), st.text(max_size=40))
def test_an_unsigned_note_has_no_effect(admin_comment: str, comment: str) -> None:
    for text in (admin_comment, f"rad: recovered restart=1 start_in_s=0 - {admin_comment}"):
        change = Modified(job_id=7, user_id=1, comment=read_comment(comment), admin_comment=text)
        assert signed_in(change, bytes(32)) is None


def test_a_note_without_a_booking_counts() -> None:
    text = signed_note(NOTE, job_id=7, user_id=1, key=bytes(32))
    change = Modified(job_id=7, user_id=1, comment=read_comment("mine"), admin_comment=text)
    found = signed_in(change, bytes(32))
    assert found is not None and found.booking is None
