"""Write a warning into the AdminComment of a running job: Slurm takes none once the job is completing."""

from __future__ import annotations

from slurm_plugin.core.comments.admin_comment import Note, read_signed, signed_note
from slurm_plugin.slurm.control import JobChange, SlurmControl


def warn(job_id: int, detail: str, control: SlurmControl, *, restart: int, key: bytes | None) -> None:
    """Write a signed warning into the AdminComment of a running job; counts in the previous note are kept.

    Args:
        job_id: The job.
        detail: One sentence.
        control: Slurm.
        restart: Restart count of its run.
        key: The cluster's key; without it the note counts for nothing.

    Raises:
        SlurmError: Slurm refused or did not answer.
    """
    view = control.job(job_id)
    if view is None or view.restarts != restart:
        return  # that run is over
    user_id = view.user_id
    before = read_signed(view.admin_comment, job_id=job_id, user_id=user_id, key=key)
    note = Note(
        event="warned",
        restart=restart,
        server_ends=None if before is None else before.server_ends,
        detail=detail,
    )
    text = signed_note(note, job_id=job_id, user_id=user_id, key=key)
    control.update(job_id, JobChange(admin_comment=text))
