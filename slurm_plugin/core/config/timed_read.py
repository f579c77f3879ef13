"""Read a small file in a child while the caller continues: a file server that hangs costs at most READ_S."""

from __future__ import annotations

from slurm_plugin.core.config.text import decoded, read_bytes
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.process.child import Child, ChildError

READ_S = 1.0
"""For reading a small file, on a machine that may be busy."""

_READABLE, _FAILED = b"+", b"-"


class TimelyFile:
    """A file that is being read."""

    def __init__(self, path: str) -> None:
        """Begin to read."""
        self.path = path
        self._child: Child | None = None
        self._problem = ""
        try:
            self._child = Child(self._read, timeout_s=READ_S)
        except ChildError as exc:
            self._problem = str(exc)

    def text(self) -> str:
        """Wait for the content and return it; only once.

        Raises:
            ConfigError: It cannot be read, or not in time.
        """
        if self._child is None:
            raise ConfigError(f"{self.path}: cannot be read: {self._problem}")
        try:
            answer = self._child.answer()
        except ChildError as exc:
            raise ConfigError(f"{self.path}: cannot be read: {exc}") from exc
        if answer.startswith(_FAILED):
            raise ConfigError(answer[1:].decode())
        return decoded(answer[1:], self.path)

    def _read(self) -> bytes:
        try:
            return _READABLE + read_bytes(self.path)
        except ConfigError as exc:
            return _FAILED + str(exc).encode()
