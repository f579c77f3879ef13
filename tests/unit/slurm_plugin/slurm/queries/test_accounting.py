from __future__ import annotations

from pathlib import Path

import pytest

from slurm_plugin.core.comments.admin_comment import Note, read_note, read_signed, signed_note
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.units import GIB
from slurm_plugin.slurm.queries.accounting import EndedJob, parse_comments, parse_ended

DATA = Path(__file__).parents[4] / "data"


def recorded(name: str) -> bytes:
    return (DATA / name).read_bytes()


def test_ended_jobs_are_read_from_columns() -> None:
    plain, recovered, other = parse_ended(recorded("sacct_ended.22.05.txt"))
    assert plain == EndedJob(job_id=1, user_id=5, admin_comment="rad: ended peak_mib=3072")
    note = read_note(recovered.admin_comment)
    assert note is not None and note.peak_bytes == 38912 << 20
    assert (other.job_id, other.admin_comment) == (3, "")


def test_line_ends_in_a_comment_forge_nothing() -> None:
    comments = parse_comments(recorded("sacct_comments.24.11.txt"))
    assert list(comments) == [1, 3, 60]
    assert comments[1].startswith("rad1:shared:")
    assert comments[60].startswith(
        "häl lo\n1                    0            rad: ended estimate_mib=1 peak_mib=2"
    )


KEY = b"k" * 32


@pytest.mark.parametrize("behind", [0, 1, 2, 300], ids=lambda more: f"{more} bytes behind the column")
def test_a_comment_that_sacct_cut_is_no_note(behind: int) -> None:
    """A writer of AdminComment cannot turn the first part of a longer text into a note."""
    note = signed_note(
        Note(event="ended", restart=0, peak_bytes=GIB, detail="x" * 182), job_id=7, user_id=5, key=KEY
    )
    assert len(note) == 240 and read_signed(note, job_id=7, user_id=5, key=KEY) is not None
    printed = (note + "y" * behind)[:240]
    (job,) = parse_ended(f"{7:<20} {5:<12} {printed:<240} \n".encode())
    assert job == EndedJob(job_id=7, user_id=5, admin_comment="")


def test_the_longest_note_about_an_end_is_whole() -> None:
    words = "recovered from running out of GPU memory, 99 times"
    most = 999_999_999_999
    note = Note(
        event="ended",
        restart=most,
        estimate_bytes=most << 20,
        peak_bytes=most << 20,
        smact=1.0,
        ran_s=most,
        detail=words,
    )
    text = signed_note(note, job_id=7, user_id=5, key=KEY)
    (job,) = parse_ended(f"{7:<20} {5:<12} {text:<240} \n".encode())
    assert read_signed(job.admin_comment, job_id=7, user_id=5, key=KEY) == note


@pytest.mark.parametrize("text", [b"JobID UID\n", b"7 2002 rad: ended\n8 2003\n"])
def test_output_of_another_shape_is_refused(text: bytes) -> None:
    with pytest.raises(SlurmError):
        parse_ended(text)


def test_no_jobs_are_no_jobs() -> None:
    assert parse_ended(b"") == parse_ended(b"\n") == ()
    assert parse_comments(b"") == {}
