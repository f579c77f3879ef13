from __future__ import annotations

from pathlib import Path

import pytest

from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.note import read_note
from slurm_plugin.slurm.accounting import EndedJob, parse_comments, parse_ended

DATA = Path(__file__).parents[3] / "data"


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


@pytest.mark.parametrize("text", [b"JobID UID\n", b"7 2002 rad: ended\n8 2003\n"])
def test_output_of_another_shape_is_refused(text: bytes) -> None:
    with pytest.raises(SlurmError):
        parse_ended(text)


def test_no_jobs_are_no_jobs() -> None:
    assert parse_ended(b"") == parse_ended(b"\n") == ()
    assert parse_comments(b"") == {}
