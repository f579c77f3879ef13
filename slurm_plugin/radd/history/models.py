"""Record the profile behind each key when it is first submitted, outside of any request."""

from __future__ import annotations

import logging
from pathlib import Path

from slurm_plugin.core.errors import EstimateError
from slurm_plugin.core.files.append_log import PRIVATE, NewLines, append_line
from slurm_plugin.core.history.models import from_lines, to_line
from slurm_plugin.core.logs.once import Complaint
from slurm_plugin.core.records.submission import JobRequest
from slurm_plugin.estimate import model_of

log = logging.getLogger("radd")

MOST_KNOWN = 100_000
"""Beyond it all are forgotten, and recurring ones are written again."""


class Models:
    """For one thread only."""

    def __init__(self, path: Path) -> None:
        """Read the known models.

        Args:
            path: The file; one that cannot be read counts as empty.
        """
        self._path = path
        self._complaint = Complaint(lambda wrong: log.warning("%s; models have no names in reports", wrong))
        try:
            models = from_lines(NewLines(path).read())
            self._known = {key: None for key, model in models.items() if model.text}
        except OSError:
            self._known = {}

    def take(self, request: JobRequest, *, now_s: float) -> None:
        """Record a submission's model; one that is invalid or already known is skipped.

        Args:
            request: The submission.
            now_s: Seconds since the epoch.
        """
        try:
            model = model_of(request, now_s=now_s)
        except EstimateError:
            return
        if model is None or (model.user, model.profile) in self._known:
            return
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        try:
            append_line(self._path, to_line(model), mode=PRIVATE)
        except OSError as exc:
            self._complaint.set(f"{self._path}: {exc.strerror}")
            return
        self._complaint.set("")
        self._known[model.user, model.profile] = None
