"""The log of what radd replied; apart from the reply, as a dry run writes no log and loads nothing for one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from slurm_plugin.core.logs.daemon_log import about
from slurm_plugin.core.logs.events import EventKind

log = logging.getLogger("radd")


def log_reply(message: Mapping[str, Any], reply: Mapping[str, Any]) -> None:
    """Log a decision once slurmctld has it, so that a slow disk delays no submission.

    Args:
        message: The request.
        reply: The reply.
    """
    kind = {"submit": EventKind.SUBMITTED, "change": EventKind.CHANGED}.get(str(message.get("op")))
    if kind is not None:
        user_id = message.get("user_id")
        facts = about(kind, user_id=user_id if isinstance(user_id, int) else None)
        log.info("%s %s", message["op"], reply.get("log", ""), extra=facts)
