"""Parse what job_submit.lua sends into records, before anything is decided from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpumemnet.records import frozen
from slurm_plugin.core.booking.request import request_from
from slurm_plugin.core.comments.signed_comment import read_comment
from slurm_plugin.core.errors import WireError
from slurm_plugin.core.records.submission import JobComment, JobRequest

NO_NAME = "job script"
"""Name of a script that was not submitted as a file."""


@frozen
class Submitted:
    """A job that is being submitted.

    Attributes:
        request: What it requests.
        script_name: Path of its script, for messages.
        script_goes_on: Whether #RAD lines follow the part of the script that is read.
    """

    request: JobRequest
    script_name: str = NO_NAME
    script_goes_on: bool = False


@frozen
class Modified:
    """A job whose AdminComment a hook has changed.

    Attributes:
        job_id: The job.
        user_id: Its user.
        comment: Its comment.
        admin_comment: What the hook wrote.
    """

    job_id: int
    user_id: int
    comment: JobComment
    admin_comment: str


def submitted_from(
    fields: Mapping[str, Any], *, honour_reserved_parts: bool, honour_new_controller: bool
) -> Submitted:
    """Return the submission that a message describes.

    Args:
        fields: The message; see `request_from`, also for the other arguments.
        honour_reserved_parts: Whether this Slurm starts no shards in a reservation of parts of nodes.
        honour_new_controller: Whether a slurmctld of this Slurm that has just started refuses shards.

    Raises:
        WireError: It is malformed.
    """
    request = request_from(
        fields, honour_reserved_parts=honour_reserved_parts, honour_new_controller=honour_new_controller
    )
    return Submitted(
        request=request,
        script_name=str(fields.get("script_name") or NO_NAME),
        script_goes_on=fields.get("script_goes_on") is True,
    )


def modified_from(fields: Mapping[str, Any]) -> Modified:
    """Return the change that a message describes.

    Raises:
        WireError: It is malformed.
    """
    return Modified(
        job_id=_id(fields, "job_id"),
        user_id=_id(fields, "user_id"),
        comment=read_comment(str(fields.get("comment") or "")),
        admin_comment=str(fields.get("admin_comment") or ""),
    )


def _id(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise WireError(f"a change without {name}")
    return value
