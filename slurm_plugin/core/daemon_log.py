"""The log of a daemon: standard error, which systemd keeps; no control character of a user reaches it."""

from __future__ import annotations

import logging
import sys

from slurm_plugin.core.text import one_line

_LONGEST = 4000


class OneLineFormatter(logging.Formatter):
    """Formats a record on one printable line; a traceback keeps its lines, each of them printable."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        lines = super().format(record).splitlines() or [""]
        if not record.exc_info:
            return one_line(" ".join(lines), _LONGEST)
        return "\n".join(_indent_of(line) + one_line(line, _LONGEST) for line in lines)


def _indent_of(line: str) -> str:
    """Return the spaces that a line begins with."""
    return " " * (len(line) - len(line.lstrip(" ")))


def log_to_stderr() -> None:
    """Let every logger of this process write to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
