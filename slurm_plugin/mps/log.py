"""Logs of all MPS daemons of a node: read as they grow, and truncated before they fill paths.run.

Every connection adds some 300 bytes, and a user may connect in a loop.
"""

from __future__ import annotations

import os
from pathlib import Path

from slurm_plugin.core.units import MIB
from slurm_plugin.mps.daemon import LOG
from slurm_plugin.mps.faults import EndedClients, faults_in

MOST_BYTES = MIB
"""Limit for one log; a daemon appends, so truncating frees the space."""

READ_BYTES = 4 * MIB
"""Read from the end of one log in one round: some 14,000 connections, lest a user hides a fault behind them."""

_KEPT_LINES = 200
"""Of the round before: a fault takes some 3 KiB."""


class LogWatch:
    """Reads the lines that daemons logged since the last round."""

    def __init__(self, servers: Path) -> None:
        """Begin at the start of the logs as they are now.

        Args:
            servers: Folder of the servers: GPU/KEY.
        """
        self._folder = servers
        self._offsets: dict[Path, int] = {}
        self._last: dict[Path, list[str]] = {}

    def faults(self) -> dict[tuple[str, str], tuple[EndedClients, ...]]:
        """Return the faults since the last round, by GPU and key of the server, each once."""
        found: dict[tuple[str, str], tuple[EndedClients, ...]] = {}
        paths = set(self._folder.glob(f"*/*/{LOG}"))
        self._offsets = {path: offset for path, offset in self._offsets.items() if path in paths}
        self._last = {path: lines for path, lines in self._last.items() if path in paths}
        for path in sorted(paths):
            try:
                lines = self._new_lines(path)
            except OSError:
                continue
            faults = faults_in([*self._last.get(path, []), *lines])
            # The lines of one fault may come in two rounds.
            self._last[path] = [] if faults else lines[-_KEPT_LINES:]
            if faults:
                found[path.parent.parent.name, path.parent.name] = faults
        return found

    def _new_lines(self, path: Path) -> list[str]:
        with path.open("rb+") as file:
            size = os.fstat(file.fileno()).st_size
            offset = self._offsets.get(path, 0)
            begin = max(0 if size < offset else offset, size - READ_BYTES)
            file.seek(begin)
            text = file.read(READ_BYTES)
            whole = text[: text.rfind(b"\n") + 1]
            self._offsets[path] = begin + len(whole)
            if size > MOST_BYTES:
                file.truncate(0)
                self._offsets[path] = 0
        return whole.decode(errors="replace").split("\n")
