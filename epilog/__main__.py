"""Epilog of a GPU node: `python -I -m epilog --config /etc/rad/rad.toml`, as root, in slurmd's environment.

It always ends with status 0, because any other drains the node, and it may be run twice for one job. What the job
holds is released before anything else is tried.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from epilog.report import ending_of, outcome_of, spool_peak, tell_peak, tell_why
from slurm_plugin.core.clock import Clock, Deadline, SystemClock
from slurm_plugin.core.config import Config
from slurm_plugin.core.errors import ConfigError, RadError
from slurm_plugin.core.events import EventKind
from slurm_plugin.core.exits import Exit
from slurm_plugin.core.hook_args import config_path
from slurm_plugin.core.job_folder import JobFolder
from slurm_plugin.core.last_good import InForce, config_in_force
from slurm_plugin.core.ledger_store import LedgerStore, boot_id
from slurm_plugin.core.log import HookLog
from slurm_plugin.core.records import Reservation
from slurm_plugin.core.recovery import as_held, next_attempt
from slurm_plugin.core.supervise import LIMITS, hook_started_s, supervised
from slurm_plugin.core.wire import read_key, read_stamp
from slurm_plugin.monitor.window import forget_job, read_job
from slurm_plugin.slurm.conf_files import find_slurm_conf, has_slurmdbd
from slurm_plugin.slurm.hook_env import HookJob

LOCK_S = 2.0
RESCUE_LOCK_S = 0.5
TAILS_S = 1.5
SLURM_ANSWER_S = 2.0
"""Parts of the hook's five seconds; each normally takes milliseconds."""


def main() -> int:
    """Run the hook."""
    started_s = hook_started_s()
    try:
        job = HookJob.from_env(os.environ)
        if job.seats:
            supervised(
                lambda: _work(job, started_s),
                lambda why: _rescue(job, why, started_s),
                started_s=started_s,
                limits=LIMITS,
            )
    except Exception as exc:  # noqa: BLE001 - whatever it is, the node must not be drained for it
        print(f"rad epilog: {exc}", file=sys.stderr)
    return Exit.OK


def _work(job: HookJob, started_s: float) -> int:
    """Release what the job holds, then say how it ended and run it again where that helps."""
    found = _settings()
    config = found.config
    clock, run = SystemClock(), Path(config.paths.run)
    log = _log(job, config, started_s)
    if config.mode == "off" and not run.is_dir():
        return Exit.OK  # nothing was ever begun here
    held = _release(job, run, clock, log, LOCK_S)
    if found.trouble:
        log.say(EventKind.LAST_GOOD_SETTINGS, found.trouble)
    try:
        if config.mode != "off" and JobFolder(run, job.job_id).refusal() is None:
            _report(job, config, held, clock, log)
    except (RadError, OSError) as exc:
        log.say(EventKind.NOT_REPORTED, str(exc))
    finally:
        _stop_mps(run, job, clock, log)  # after the report: its log says who ended whom
        forget_job(run, job.job_id)
        JobFolder(run, job.job_id).remove()
    log.say(EventKind.END)
    return Exit.OK


def _rescue(job: HookJob, why: str, started_s: float) -> int:
    """Release what the job holds, and no more: the work did not end in its time."""
    config = _settings().config
    clock, run = SystemClock(), Path(config.paths.run)
    log = _log(job, config, started_s)
    _release(job, run, clock, log, RESCUE_LOCK_S)
    forget_job(run, job.job_id)
    JobFolder(run, job.job_id).remove()
    log.say(EventKind.OUT_OF_TIME, why)
    _stop_mps(run, job, clock, log)
    log.say(EventKind.END)
    return Exit.OK


def _settings() -> InForce:
    """Return the settings; a release must not depend on them, so at the worst these are the defaults."""
    try:
        return config_in_force(config_path(sys.argv))
    except ConfigError as exc:
        return InForce(config=Config(mode="off"), trouble=str(exc))


def _log(job: HookJob, config: Config, started_s: float) -> HookLog:
    return HookLog(
        config.paths.log,
        "epilog",
        job_id=job.job_id,
        restart=job.restart,
        clock=SystemClock(),
        start_s=started_s,
    )


def _release(job: HookJob, run: Path, clock: Clock, log: HookLog, lock_s: float) -> Reservation | None:
    """Give back what the job holds and return it; a lock that is not free in time leaves a note instead."""
    try:
        store = LedgerStore(run, clock=clock, boot_id=boot_id())
        return store.release(job.job_id, restart=job.restart, deadline=Deadline(clock, lock_s))
    except RadError as exc:
        log.say(EventKind.NOT_RELEASED, str(exc))
        return None


def _stop_mps(run: Path, job: HookJob, clock: Clock, log: HookLog) -> None:
    if (run / "mps").is_dir():
        from slurm_plugin.mps import Mps

        try:
            Mps(run, clock=clock).release(job.job_id)
        except RadError as exc:
            log.say(EventKind.NOT_RELEASED, str(exc))


def _report(job: HookJob, config: Config, held: Reservation | None, clock: Clock, log: HookLog) -> None:
    """Say how the job ended and run it again where that helps."""
    usage = read_job(Path(config.paths.run), job.job_id)
    outcome = outcome_of(
        job, config, held=held, usage=usage, deadline=Deadline(clock, TAILS_S), log=log, clock=clock
    )
    log.tell(ending_of(outcome))
    try:
        key = read_key(Path(config.paths.key))
    except ConfigError as exc:
        log.say(EventKind.NO_RECOVERY, str(exc))
        return
    booking = read_stamp(job.comment, user_id=job.user_id, key=key)
    settings = config.partition(job.partition)
    if booking is None or settings is None:
        return
    booking = as_held(booking, held)
    if config.features.history:
        spool_peak(config, job, booking, outcome, usage, now_s=clock.now_s())
    recovery = next_attempt(booking, outcome, settings) if config.features.recovery else None
    slurm_conf = find_slurm_conf(config.paths.slurm_conf, os.environ)
    if recovery is None:
        if outcome.kind == "overrun" and config.mode == "enforce":
            tell_why(job, booking, outcome, slurm_conf=slurm_conf, timeout_s=SLURM_ANSWER_S)
        elif config.features.accounting and config.mode == "enforce" and has_slurmdbd(slurm_conf):
            tell_peak(job, booking, outcome, slurm_conf=slurm_conf, log=Path(config.paths.log))
        return
    if config.mode == "observe":
        log.say(EventKind.WOULD_RUN_AGAIN, recovery.reason)
        return
    from epilog.recover import recover  # an ordinary job ends without a question to Slurm
    from slurm_plugin.slurm.commands import SlurmCommands

    control = SlurmCommands(slurm_conf=str(slurm_conf or ""), timeout_s=SLURM_ANSWER_S)
    restart = held.restart if held else job.restart
    log.tell(recover(job, recovery, outcome, settings, control, restart=restart, key=key))


if __name__ == "__main__":
    sys.exit(main())
