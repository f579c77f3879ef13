"""What the log is told of a decision, once slurmctld has it: a slow disk delays no submission."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from slurm_plugin.core.daemon_log import about
from slurm_plugin.core.events import EventKind

log = logging.getLogger("radd")

_DECIDED = {"submit": EventKind.SUBMITTED, "change": EventKind.CHANGED}


def tell(message: Mapping[str, Any], reply: Mapping[str, Any]) -> None:
    """Log what was decided; other messages decide nothing.

    Args:
        message: What was asked.
        reply: What was answered.
    """
    kind = _DECIDED.get(str(message.get("op")))
    if kind is not None:
        user_id = message.get("user_id")
        known = user_id if isinstance(user_id, int) else None
        log.info("%s %s", message["op"], reply.get("log", ""), extra=about(kind, user_id=known))
