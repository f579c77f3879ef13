"""A warning is signed for the job's run, and what the note before it counts is not lost by it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import FakeSlurm

from slurm_plugin.core.comments.admin_comment import Note, read_signed, signed_note
from slurm_plugin.guard.violation import Violation
from slurm_plugin.slurm.control import JobChange, JobView
from slurm_plugin.slurm.warning import warn

KEY = b"k" * 32
JOB = JobView(job_id=7, user_id=1000, state="RUNNING", restarts=2)
VIOLATION = Violation(
    kind="memory",
    gpu="GPU-0",
    job_id=7,
    user_id=1000,
    used_bytes=2 << 30,
    limit_bytes=1 << 30,
    free_bytes=0,
    processes=(),
    restart=2,
)


def written(violation: Violation, job: JobView) -> list[str | None]:
    slurm = FakeSlurm(job)
    warn(7, violation.sentence(), slurm, restart=violation.restart, key=KEY)  # type: ignore[arg-type]
    return [change.admin_comment for _, change in slurm.reported if isinstance(change, JobChange)]


def test_a_warning_is_signed_for_the_run_and_teaches_nothing() -> None:
    (text,) = written(VIOLATION, JOB)
    assert text is not None
    note = read_signed(text, job_id=7, user_id=1000, key=KEY)
    assert note == Note(event="warned", restart=2, detail=VIOLATION.sentence())
    assert read_signed(text, job_id=7, user_id=1001, key=KEY) is None


@pytest.mark.parametrize("signed", [True, False])
def test_a_warning_carries_on_what_was_counted_under_a_signature(signed: bool) -> None:
    """A job could otherwise have itself warned, and its MPS server's ends would begin again at none."""
    before = Note(event="recovered", restart=2, start_in_s=0, server_ends=2)
    text = signed_note(before, job_id=7, user_id=1000, key=KEY if signed else None)
    (after,) = written(VIOLATION, replace(JOB, admin_comment=text))
    note = read_signed(after or "", job_id=7, user_id=1000, key=KEY)
    assert note is not None and note.server_ends == (2 if signed else None)


def test_a_run_that_is_over_is_not_warned() -> None:
    assert written(VIOLATION, replace(JOB, restarts=3)) == []
