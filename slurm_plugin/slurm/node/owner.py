"""Become the user of a job: root opens no path of a user as root."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Identity that a child process takes.

    Attributes:
        user_id: The user.
        group_id: The user's group for the job.
        user_name: Used to find the other groups of the user; "" if unknown.
    """

    user_id: int
    group_id: int
    user_name: str = ""


def become(owner: Identity) -> None:
    """Take a user's identity for good; only for a child process that ends afterwards.

    Raises:
        PermissionError: This process runs neither as root nor as that user.
    """
    if os.geteuid() != 0:
        if os.geteuid() != owner.user_id:
            raise PermissionError("only root can read as another user")
        return
    groups = [owner.group_id]
    if owner.user_name:
        with contextlib.suppress(KeyError):
            groups = os.getgrouplist(owner.user_name, owner.group_id)
    os.setgroups(groups)
    os.setresgid(owner.group_id, owner.group_id, owner.group_id)
    os.setresuid(owner.user_id, owner.user_id, owner.user_id)
