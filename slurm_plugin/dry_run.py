"""Predict what sbatch would report for a job: the decisions of the login node and of radd, computed locally.

`rad-estimate` is gpumemnet's command; this module describes the cluster to it. Nothing is signed and no daemon is
queried, so two things stay unknown: earlier runs of the same job, which radd remembers, and whether Slurm accepts the
job. `ask` finds out both. The file of `site_quantiles` counts if it can be read here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gpumemnet.cli.cluster import HypotheticalJob, SbatchAnswer, Scheduled, UsablePartition
from gpumemnet.errors import SetupError
from gpumemnet.gpus import Gpu
from slurm_plugin.core.config.load import Config, load_config
from slurm_plugin.core.errors import ConfigError, RadError, SlurmError
from slurm_plugin.core.records.submission import GresItem, JobRequest
from slurm_plugin.directives import head_of
from slurm_plugin.login.cli_filter import LoginResult, seen_on_login
from slurm_plugin.radd.protocol.reply import Decided
from slurm_plugin.radd.submission.prepare import prepared
from slurm_plugin.slurm.files.installed import version_in_use
from slurm_plugin.slurm.submission.job_desc import batch_desc
from slurm_plugin.slurm.submission.sbatch_options import options_of
from slurm_plugin.slurm.versions import OLDEST


class DryRun:
    """A cluster with RAD, as described by rad.toml and slurm.conf on this machine."""

    def __init__(self, rad_toml: Path, *, env: Mapping[str, str], folder: Path, user_id: int) -> None:
        """Read the files.

        Args:
            rad_toml: Its path.
            env: The user's environment.
            folder: Folder where the user would run sbatch.
            user_id: The user.

        Raises:
            ConfigError: rad.toml is invalid.
        """
        self._env, self._folder, self._user_id = env, folder, user_id
        self._config = _read(rad_toml)
        try:
            version = version_in_use(self._config.paths.slurm_conf)
        except SlurmError:
            version = OLDEST  # same assumption as in radd
        self._submission, _ = prepared(self._config, version, rad_toml=rad_toml, key=b"", peaks=None)

    @property
    def estimator(self) -> str:
        """Return the estimator that is used for bookings there."""
        return self._config.estimator

    @property
    def gpu_model(self) -> Gpu:
        """Return the cluster's GPU type, with the base that was measured there."""
        return self._submission.estimator.gpu_model()

    @property
    def places(self) -> tuple[UsablePartition, ...]:
        """Return the cluster's shared partitions."""
        return tuple(
            UsablePartition(
                partition=name,
                gpu=size.type or self.gpu_model.name,
                usable_bytes=size.capacity_bytes,
                shards=size.shards,
                shard_bytes=settings.shard_bytes,
            )
            for name, settings in self._config.partitions.items()
            if settings.collocate
            for size in settings.sizes
        )

    def submit(self, job: HypotheticalJob) -> SbatchAnswer:
        """Return what sbatch would report, without querying Slurm.

        Raises:
            SetupError: sbatch itself would reject the options.
        """
        try:
            options = options_of(job.script, job.typed, self._env)
            seen, decided = self._decide(job, options)
        except RadError as exc:
            raise SetupError(str(exc)) from exc
        booking = decided.rewrite.booking
        learned = "" if decided.estimate is None else decided.estimate.learned
        name = decided.request.partition or self._config.default_partition
        partition = self._config.partition(name)
        return SbatchAnswer(
            messages=(*seen.messages, *decided.messages),
            refusal=decided.refusal,
            faults=seen.trouble or bool(decided.faults),
            partition=name,
            gres=_asks(decided),
            decision=decided.rewrite.reason,
            booked_bytes=None if booking is None else booking.memory_bytes,
            limit_bytes=None if booking is None else booking.cap_bytes,
            share=decided.rewrite.share,
            capacity_bytes=partition.capacity_bytes
            if partition is not None and partition.collocate
            else None,
            shard_bytes=partition.shard_bytes if partition is not None and partition.collocate else None,
            shards=partition.shards if partition is not None and partition.collocate else None,
            upper_bytes=decided.estimate.upper_bytes if learned and decided.estimate is not None else None,
            learned=learned or self._unknown(decided),
        )

    def ask(self, job: HypotheticalJob) -> Scheduled:
        """Return Slurm's answer, and when the job would start; nothing is submitted.

        Raises:
            SetupError: Slurm cannot be queried here.
        """
        from slurm_plugin.slurm.submission.dry_submit import try_submission  # only --ask needs it

        words = (*job.typed, *([job.path] if job.path else []))
        script = job.script if job.path is None else None
        env = dict(self._env)
        if self._config.paths.slurm_conf:
            env.setdefault("SLURM_CONF", self._config.paths.slurm_conf)
        try:
            tried = try_submission(words, env=env, script=script or "#!/bin/sh\n")
        except RadError as exc:
            raise SetupError(str(exc)) from exc
        return Scheduled(lines=tried.lines, starts=tried.starts)

    def _unknown(self, decided: Decided) -> str:
        """Return why this site's learned quantiles are not used here; "" if they are, or if there are none."""
        path = self._config.site_quantiles
        if not path or self._submission.site or decided.estimate is None or not decided.estimate.kind:
            return ""
        return f"sbatch may book another amount: this site's statistics cannot be read here ({path})"

    def _decide(self, job: HypotheticalJob, options: Mapping[str, str]) -> tuple[LoginResult, Decided]:
        """Run the steps of cli_filter.lua on the login node, and then of job_submit.lua, which asks radd."""
        config, comment = self._config, options.get("comment", "")
        partition = config.partition(options.get("partition"))
        own = partition is not None and partition.managed
        off = config.mode == "off" or not config.features.submit or bool(self._submission.leave_jobs)
        head, goes_on = (None, False) if job.script is None else head_of(job.script.encode(errors="replace"))
        seen = LoginResult()
        if own and not off:
            seen = seen_on_login(head if job.path else None, job.path, comment=comment, folder=self._folder)
        desc = batch_desc(
            options, comment=comment if seen.comment is None else seen.comment, user_id=self._user_id
        )
        name = None if job.path is None else str(self._folder / job.path)  # as passed on by sbatch
        message = {**desc, "script": head, "script_goes_on": goes_on, "script_name": name}
        decided = self._submission.decided(self._submission.parsed(message))
        return (LoginResult() if config.mode == "observe" else seen), decided


def _read(path: Path) -> Config:
    """Return rad.toml, read as the login node reads it at each submission.

    Raises:
        ConfigError: It is invalid.
    """
    if path.exists() and not os.access(path, os.R_OK):
        fix = "it contains no secret and every sbatch reads it; ask an admin to run: chmod 644"
        raise ConfigError(f"{path}: permission denied; {fix} {path}")
    return load_config(path)


def _asks(decided: Decided) -> str:
    """Return a job's request to Slurm, as `--gres` would state it for each of its GPUs."""
    rewrite, booking = decided.rewrite, decided.rewrite.booking
    if rewrite.each_gpu and booking is not None:
        return rewrite.each_gpu if booking.gpus == 1 else f"{booking.gpus} x {rewrite.each_gpu}"
    return rewrite.fields.get("gres") or _as_text(decided.request)


def _as_text(request: JobRequest) -> str:
    """Return the GRES request of a job that passes through unchanged, whichever option it uses."""
    others = (request.other_gres,) if request.other_gres else ()
    return ",".join((*(_item(item) for item in request.requested if item.name in ("gpu", "shard")), *others))


def _item(item: GresItem) -> str:
    return ":".join(filter(None, (item.name, item.type, str(item.count))))
