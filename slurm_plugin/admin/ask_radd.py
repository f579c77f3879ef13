"""Query radd's state over its socket; it answers only root and SlurmUser."""

from __future__ import annotations

import json
import socket
from typing import Any

PING_S = 1.0


def ask_radd(path: str) -> dict[str, Any] | str:
    """Return radd's answer to a ping, or why there is none.

    Args:
        path: paths.socket.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PING_S)
            connection.connect(path)
            connection.sendall(b'{"v": 1, "op": "ping"}\n')
            answer = json.loads(connection.makefile("rb").readline())
    except OSError as exc:
        return f"no answer: {exc.strerror or exc}"
    except ValueError as exc:
        return f"no answer: {exc}"
    if not isinstance(answer, dict) or not answer.get("pong"):
        return f"an answer that is not radd's: {answer}"
    return answer
