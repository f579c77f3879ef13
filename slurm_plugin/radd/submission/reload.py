"""Keep what answers submissions as rad.toml and slurm.conf have it, and the file that the shim uses without radd."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.comments import signed_comment
from slurm_plugin.core.config.in_use import in_use
from slurm_plugin.core.config.last_good import config_in_force
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import ConfigError, SlurmError
from slurm_plugin.core.history.runs import peaks_path
from slurm_plugin.radd.history.peaks import PeakHistory
from slurm_plugin.radd.protocol.fallback import EVERY_S, fallback_of, write_fallback
from slurm_plugin.radd.submission.prepare import prepared
from slurm_plugin.radd.submission.select_parameters import SelectParameters, version_of
from slurm_plugin.radd.submission.standby import Standby
from slurm_plugin.radd.submission.submit import Submission
from slurm_plugin.slurm.control import SlurmControl
from slurm_plugin.slurm.versions import parse_version, written

log = logging.getLogger("radd")


class Reloader:
    """Keeps what answers submissions up to date. A new `Submission` replaces the old one as a whole.

    Attributes:
        version: Version of the running slurmctld, as far as known.
        peaks: Records of earlier runs.
        standby: Whether the requesting slurmctld may know of no shards.
        settings: `in_use` of rad.toml, for `rad doctor`.
    """

    def __init__(self, config_path: Path, slurm: SlurmControl, clock: Clock) -> None:
        """Read the configuration.

        Raises:
            ConfigError: rad.toml or the cluster's key is unusable.
        """
        self._config_path, self._slurm, self._clock = config_path, slurm, clock
        self.version = version_of(slurm)
        self._select = SelectParameters(slurm)
        self._logged: frozenset[str] = frozenset()
        """Obstacles to sharing already logged; cleared on reload so that they are logged again."""
        found = config_in_force(config_path)
        config = found.config
        self.settings = in_use(config, config_path)
        if found.trouble:
            log.error("%s", found.trouble)
        self.standby = Standby(slurm, self.version, config, clock)
        self.peaks = PeakHistory(peaks_path(Path(config.paths.state)))
        self.peaks.refresh()
        self._submission = self._prepared(config)
        self._preparing = threading.Lock()
        """Held while rad.toml or slurm.conf is read again: two threads do that, and must not undo each other."""
        self._wrote_s = 0.0

    @property
    def submission(self) -> Submission:
        """Return what answers submissions now."""
        return self._submission

    @property
    def config(self) -> Config:
        """Return the configuration in force."""
        return self._submission.config

    @property
    def key(self) -> bytes:
        """Return the cluster's key in force."""
        return self._submission.key

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
            self.settings = in_use(found.config, self._config_path)
            self.leave_fallback()
        log.info("rad.toml read again: mode %s", self.config.mode)

    def look(self) -> None:
        """Take over an upgraded Slurm, a changed slurm.conf and what a standby knows, and show that radd still runs."""
        with self._preparing:
            upgraded = self._upgraded()
            if self._select.look(self.config) or upgraded:
                self._slurm_conf_changed()
        changed = self.standby.look(self.config)
        with self._preparing:  # a reload at this moment leaves the newer file
            if changed or not 0 <= self._clock.now_s() - self._wrote_s < EVERY_S:
                self.leave_fallback()

    def leave_fallback(self) -> None:
        """Write what the shim does if radd does not answer."""
        made, now_s = self._submission, self._clock.now_s()
        # Slurm could split all shards of a GPU over two.
        leave_jobs = bool(made.leave_jobs) or made.max_shard_gpus > 0 or self.standby.without_shards
        fallback = fallback_of(
            made.config,
            made.whole_as_gpu,
            leave_jobs=leave_jobs,
            gpu_defaults=made.gpu_defaults,
            now_s=now_s,
        )
        write_fallback(Path(made.config.paths.socket), fallback)
        self._wrote_s = now_s

    def _upgraded(self) -> bool:
        """Take over the version of a slurmctld that was upgraded, and return whether it was.

        Until it is restarted the earlier version counts, whatever commands are installed.
        """
        try:
            found = self._slurm.version()
            if found == self.version or parse_version(self._slurm.config().get("SLURM_VERSION", "")) != found:
                return False
        except SlurmError:
            return False  # no slurmctld that these commands can ask
        log.info("decides for Slurm %s from now on, before for %s", written(found), written(self.version))
        self.version = found
        self.standby = Standby(self._slurm, found, self.config, self._clock)
        return True

    def _slurm_conf_changed(self) -> None:
        try:
            self._submission = self._prepared(self.config)
        except ConfigError as exc:
            log.error("slurm.conf not applied: %s", exc)
            return
        self.leave_fallback()
        max_shard_gpus = max(1, self._submission.max_shard_gpus)
        log.info("slurm.conf read again: one job may have shards of %d GPUs of a node", max_shard_gpus)

    def _prepared(self, config: Config) -> Submission:
        key = signed_comment.read_key(Path(config.paths.key))
        self._select.look(config)
        submission, in_the_way = prepared(
            config,
            self.version,
            rad_toml=self._config_path,
            key=key,
            peaks=self.peaks,
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
