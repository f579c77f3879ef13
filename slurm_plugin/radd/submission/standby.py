"""Detect that a standby slurmctld took over and knows of no shards.

Slurm before 23.11 starts with its nodes' saved state and learns their shards when they register. A newly started
slurmctld requests that within seconds; the shim recognises it by its age. A standby is not a new process when it takes
over, and requests nothing. Where slurm.conf names the type of GPUs but not of their shards, nodes of 22.05.8 then
showed `shard:0` for as long as the standby was in charge (docs/admin/operation.md). It refuses jobs that request
shards, but gives whole GPUs. So radd checks from time to time. Its first message may come from a slurmctld that has
just taken over, because radd gets none before.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import replace

from slurm_plugin.core.booking.gres_text import count_of, parse_gres
from slurm_plugin.core.clock import Clock
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import SlurmError, WireError
from slurm_plugin.radd.protocol.messages import Submitted
from slurm_plugin.slurm.control import SlurmControl
from slurm_plugin.slurm.files.conf_files import controllers_of, find_slurm_conf
from slurm_plugin.slurm.versions import Version, traits

log = logging.getLogger("radd")

_GONE = "slurmctld, a standby that took over, has no shards: jobs get whole GPUs"
_BACK = "slurmctld has shards again"

UNSURE_S = 10.0
"""From the first submission on: by then radd has checked twice (inbox.py, REFRESH_S)."""


class Standby:
    """Whether the requesting slurmctld may know of no shards."""

    def __init__(self, slurm: SlurmControl, version: Version, config: Config, clock: Clock) -> None:
        """Read slurm.conf. Slurm is queried by `look`, never while a submission is answered."""
        self._slurm, self._version, self._clock = slurm, version, clock
        self._first_s: float | None = None
        self.without_shards = False
        """Whether no node had a shard at the last check."""
        self._watched = self._is_watched(config)

    def look(self, config: Config) -> bool:
        """Read slurm.conf and, where it names a standby, check the nodes; log any change and return whether it is one.

        Args:
            config: rad.toml.
        """
        before = self.without_shards
        self._watched = self._is_watched(config)
        try:
            self.without_shards = self._watched and no_shards(node.gres for node in self._slurm.nodes())
        except SlurmError:
            return False  # no slurmctld is in charge
        if before != self.without_shards:
            log.warning(_GONE if self.without_shards else _BACK)
        return before != self.without_shards

    def noted(self, job: Submitted) -> Submitted:
        """Return a submission as the shim would have sent it with the knowledge that radd has."""
        if not self.may_lack_shards():
            return job
        return replace(job, request=replace(job.request, before_shards=True))

    def may_lack_shards(self) -> bool:
        """Return whether a submission may now reach a slurmctld that would refuse shards."""
        now_s = self._clock.monotonic_s()
        if self._first_s is None:
            self._first_s = now_s
        return self._watched and (self.without_shards or now_s - self._first_s < UNSURE_S)

    def _is_watched(self, config: Config) -> bool:
        path = find_slurm_conf(config.paths.slurm_conf, os.environ)
        return traits(self._version).forgets_shards and path is not None and len(controllers_of(path)) > 1


def no_shards(each_gres: Iterable[str]) -> bool:
    """Return whether nodes have shards by name, but none has any to give.

    Args:
        each_gres: Gres of each node, as Slurm shows it.

    >>> no_shards(["gpu:a100:4,shard:a100:0", ""]), no_shards(["shard:0", "gpu:4,shard:160"]), no_shards(["gpu:4"])
    (True, False, False)
    """
    counts = [_shards(text) for text in each_gres if "shard:" in text]
    return bool(counts) and not any(counts)


def _shards(gres: str) -> int:
    try:
        return count_of(parse_gres(gres), "shard")
    except WireError:
        return 1  # longer than any request: it is not judged
