"""Check that Slurm runs with the current slurm.conf: an admin may edit the file first and restart slurmctld later.

A slurmctld started without the option refuses a job that requests shards of several GPUs. So the option counts only
while both the file and the running slurmctld have it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.slurm.control import SlurmControl
from slurm_plugin.slurm.files.conf_files import find_slurm_conf, settings_of
from slurm_plugin.slurm.files.conf_lines import read_lines, text_of
from slurm_plugin.slurm.versions import OLDEST, SPREADING, Version

log = logging.getLogger("radd")


class SelectParameters:
    """SelectTypeParameters of the running slurmctld, as far as they are known."""

    def __init__(self, slurm: SlurmControl) -> None:
        """Start with nothing known. Slurm is queried by `look`, never while a submission is answered."""
        self._slurm = slurm
        self._written: dict[Path, int] = {}
        """When slurm.conf and each file that it includes was changed, in ns since the epoch; -1 if there is none."""
        self._waits = False
        """Whether the file has the option and slurmctld, as far as known, does not."""
        self.running: str | None = None
        """None if slurmctld has not answered yet: then it will start with the file's content."""

    def look(self, config: Config) -> bool:
        """Read slurm.conf, query slurmctld if only the file has the option, and return whether anything changed.

        Args:
            config: rad.toml.
        """
        before = self._written, self.running
        path = find_slurm_conf(config.paths.slurm_conf, os.environ)
        changed = path not in self._written or self._written != _change_times(self._written)
        if changed:
            self._written = {} if path is None else _change_times(_files_of(path))
        if path is not None and (changed or self._waits):
            self._waits = SPREADING in settings_of(path).get("selecttypeparameters", "").upper()
            if self._waits:
                with suppress(SlurmError):
                    self.running = self._slurm.config().get("SelectTypeParameters", "")
                self._waits = self.running is None or SPREADING not in self.running.upper()
        return before != (self._written, self.running)


def _files_of(slurm_conf: Path) -> list[Path]:
    """Return slurm.conf and the files that it includes, also those that are missing."""
    files: list[Path] = []

    def noted(path: Path) -> str:
        files.append(path)
        return text_of(path)

    read_lines(slurm_conf, noted)
    return files


def _change_times(files: Iterable[Path]) -> dict[Path, int]:
    """Return when each file was changed."""
    found = dict.fromkeys(files, -1)
    for path in found:
        with suppress(OSError):
            found[path] = path.stat().st_mtime_ns
    return found


def version_of(slurm: SlurmControl) -> Version:
    """Return Slurm's version; the oldest that is supported if Slurm does not answer."""
    try:
        return slurm.version()
    except SlurmError as exc:
        log.warning("Slurm's version is not known, so the oldest is assumed: %s", exc)
        return OLDEST
