"""Dispatch radd's messages by operation, and check which user may send them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from slurm_plugin.core.clock import Clock, SystemClock
from slurm_plugin.core.comments import signed_comment
from slurm_plugin.core.comments.admin_comment import format_note, read_note, read_signed
from slurm_plugin.core.config.last_good import config_in_force
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import ConfigError, WireError
from slurm_plugin.core.history.models import models_path
from slurm_plugin.core.history.runs import peaks_path
from slurm_plugin.core.logs.daemon_log import about
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.process.background import in_background
from slurm_plugin.radd.fallback import EVERY_S, fallback_of, write_fallback
from slurm_plugin.radd.history import Peaks, run_from_note
from slurm_plugin.radd.in_force import SelectParameters, version_of
from slurm_plugin.radd.models import Models
from slurm_plugin.radd.prepare import prepared
from slurm_plugin.radd.release import Releaser
from slurm_plugin.radd.reply import VERSION, checked_version
from slurm_plugin.radd.standby import Standby
from slurm_plugin.radd.submit import Submission
from slurm_plugin.radd.undecided import Undecided
from slurm_plugin.slurm.control import SlurmControl
from slurm_plugin.slurm.versions import written

log = logging.getLogger("radd")

REFRESH_S = 5.0
"""How often peaks written by Epilogs are read."""


class Service:
    """radd without its socket."""

    def __init__(
        self, config_path: Path, slurm: SlurmControl, releaser: Releaser, clock: Clock | None = None
    ) -> None:
        """Read the configuration.

        Raises:
            ConfigError: rad.toml or the cluster's key is unusable.
        """
        self._config_path = config_path
        self._releaser = releaser
        self._clock = clock or SystemClock()
        self._version = version_of(slurm)
        self._select = SelectParameters(slurm)
        self._logged: frozenset[str] = frozenset()
        """Obstacles to sharing already logged; cleared on reload so that they are logged again."""
        found = config_in_force(config_path)
        config = found.config
        if found.trouble:
            log.error("%s", found.trouble)
        self._standby = Standby(slurm, self._version, config, self._clock)
        self._peaks = Peaks(peaks_path(Path(config.paths.state)), config.gpu)
        self._peaks.refresh()
        self._models = Models(models_path(Path(config.paths.state)))
        self._submission = self._prepared(config)
        self._preparing = threading.Lock()
        """Held while rad.toml or slurm.conf is read again: two threads do that, and must not undo each other."""
        self._undecided = Undecided()
        self._wrote_s = 0.0
        self._refreshed_s = self._clock.monotonic_s()
        self._changes: SimpleQueue[Mapping[str, Any] | None] = SimpleQueue()
        self._learner = in_background("radd-learn", self._learn, log=log)

    @property
    def config(self) -> Config:
        """Return the configuration in force."""
        return self._submission.config

    @property
    def key(self) -> bytes:
        """Return the cluster's key in force."""
        return self._submission.key

    @property
    def peaks(self) -> Peaks:
        """Return the records of earlier runs."""
        return self._peaks

    def reload(self) -> None:
        """Read rad.toml again.

        Raises:
            ConfigError: It is wrong; what was in force stays in force.
        """
        found = config_in_force(self._config_path)
        if found.trouble:
            raise ConfigError(found.trouble)
        with self._preparing:
            self._logged = frozenset()
            self._submission = self._prepared(found.config)
            self.leave_fallback()
        log.info("rad.toml read again: mode %s", self.config.mode)

    def leave_fallback(self) -> None:
        """Write what the shim does if radd does not answer."""
        made, now_s = self._submission, self._clock.now_s()
        # Slurm could split all shards of a GPU over two.
        leave_jobs = bool(made.leave_jobs) or made.max_shard_gpus > 0 or self._standby.without_shards
        fallback = fallback_of(
            made.config,
            made.whole_as_gpu,
            leave_jobs=leave_jobs,
            now_s=now_s,
        )
        write_fallback(Path(made.config.paths.socket), fallback)
        self._wrote_s = now_s

    def stop(self) -> None:
        """Finish pending work."""
        self._changes.put(None)
        self._learner.join(timeout=2)

    def handle(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer one message.

        Raises:
            WireError: It is malformed.
        """
        operation = message.get("op")
        if operation == "ping":
            undecided = self._undecided.as_answer(now_s=self._clock.now_s())
            return {"v": VERSION, "pong": True, "leaves_jobs": self._submission.leave_jobs, **undecided}
        if operation == "status":
            return self._status()
        checked_version(message)
        if operation == "submit":
            self._note_undecided(message.get("undecided"))
            reply = self._submission.answer(self._standby.noted(message))
            if self.config.features.history and signed_comment.profile_in(str(message.get("comment") or "")):
                self._changes.put(message)
            return reply
        if operation == "change":
            return self._submission.answer_change(message)
        if operation == "modify":
            self._changes.put(message)
            return {"v": VERSION}
        raise WireError(f"unknown operation {operation!r}")

    def _prepared(self, config: Config) -> Submission:
        key = signed_comment.read_key(Path(config.paths.key))
        self._select.look(config)
        submission, in_the_way = prepared(
            config,
            self._version,
            key=key,
            peaks=self._peaks,
            running=self._select.running,
        )
        submission.estimator.load()
        if config.site_quantiles and not submission.site:
            log.warning(
                "%s: no numbers of rad learn for this release and estimator; estimates are as shipped",
                config.site_quantiles,
            )
        logged, self._logged = self._logged, frozenset(one.text for one in in_the_way)
        for text in sorted(self._logged - logged):
            log.error("%s", text)
        return submission

    def _note_undecided(self, total: object) -> None:
        before, self._undecided = (
            self._undecided,
            self._undecided.with_count(total, now_s=self._clock.now_s()),
        )
        if self._undecided.total and self._undecided.total != before.total:
            text = "%d submissions without a decision, as reported since radd started"
            log.warning(text, self._undecided.total, extra=about(EventKind.UNDECIDED))

    def _status(self) -> dict[str, Any]:
        config = self.config
        return {
            "v": VERSION,
            "mode": config.mode,
            "estimator": config.estimator,
            "slurm": written(self._version),
            "partitions": sorted(name for name, each in config.partitions.items() if each.collocate),
        }

    def _learn(self) -> bool:
        """Read one change that the hooks wrote, outside of any request; return whether there may be another."""
        try:
            message = self._changes.get(timeout=REFRESH_S)
        except Empty:
            self._refresh()
            return True
        if message is None:
            return False
        try:
            self._take_in(message)
        except (KeyError, TypeError, ValueError) as exc:
            log.warning("change not understood: %r", exc)
        if self._clock.monotonic_s() - self._refreshed_s >= REFRESH_S:
            self._refresh()  # also where a message comes every second
        return True

    def _refresh(self) -> None:
        """Read what was written since, and show the shim that radd is still running."""
        self._refreshed_s = self._clock.monotonic_s()
        self._peaks.refresh()
        with self._preparing:
            if self._select.look(self.config):
                self._slurm_conf_changed()
        if self._standby.look(self.config) or not 0 <= self._clock.now_s() - self._wrote_s < EVERY_S:
            self.leave_fallback()

    def _slurm_conf_changed(self) -> None:
        try:
            self._submission = self._prepared(self.config)
        except ConfigError as exc:
            log.error("slurm.conf not applied: %s", exc)
            return
        self.leave_fallback()
        max_shard_gpus = max(1, self._submission.max_shard_gpus)
        log.info("slurm.conf read again: one job may have shards of %d GPUs of a node", max_shard_gpus)

    def _take_in(self, message: Mapping[str, Any]) -> None:
        if message.get("op") == "submit":
            self._models.take(message, now_s=self._clock.now_s())
            return
        text = str(message.get("admin_comment", ""))
        job_id, user_id = int(message["job_id"]), int(message["user_id"])
        if (shown := read_note(text)) is not None:
            what = about(EventKind.RECEIVED, job_id=job_id, user_id=user_id)
            log.info("job %d: %s", job_id, format_note(shown), extra=what)
        note = read_signed(text, job_id=job_id, user_id=user_id, key=self.key)
        if note is None:
            return
        booking = signed_comment.read_signed_booking(
            str(message.get("comment") or ""), user_id=user_id, key=self.key
        )
        if self.config.features.recovery:
            self._releaser.hear(job_id, note, profile_key=None if booking is None else booking.profile_key)
        if self.config.features.history:
            now_s = self._clock.now_s()
            run = run_from_note(note, booking, self.config, user_id=user_id, job_id=job_id, now_s=now_s)
            if run is not None:
                self._peaks.record(run)
                self._peaks.refresh()
