"""Epilog of a GPU node: `python -I -m epilog --config /etc/rad/rad.toml`, as root, in slurmd's environment.

It always ends with status 0, because any other drains the node, and it may be run twice for one job. What the job
holds is released before anything else is tried.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from epilog.report import ending_of, outcome_of, spool_peak, tell_peak
from slurm_plugin.core.clock import Clock, Deadline, SystemClock
from slurm_plugin.core.config import Config, load_config
from slurm_plugin.core.errors import ConfigError, RadError
from slurm_plugin.core.events import EventKind
from slurm_plugin.core.exits import Exit
from slurm_plugin.core.hook_args import config_path
from slurm_plugin.core.job_folder import JobFolder
from slurm_plugin.core.ledger_store import LedgerStore, boot_id
from slurm_plugin.core.log import HookLog
from slurm_plugin.core.records import Reservation
from slurm_plugin.core.recovery import next_attempt
from slurm_plugin.core.time_budget import HOOK_BUDGET_S, TimeIsUp, time_budget
from slurm_plugin.core.wire import read_key, read_stamp
from slurm_plugin.monitor.window import forget_job, read_job
from slurm_plugin.slurm.conf_files import find_slurm_conf, has_slurmdbd
from slurm_plugin.slurm.hook_env import HookJob

LOCK_S = 2.0
TAILS_S = 1.5
SLURM_ANSWER_S = 2.0
"""Parts of the hook's five seconds; each normally takes milliseconds."""


def main() -> int:
    """Run the hook."""
    try:
        job = HookJob.from_env(os.environ)
        if job.seats:
            config = load_config(config_path(sys.argv))
            if config.mode != "off":
                with time_budget(HOOK_BUDGET_S):
                    _run(job, config)
    except (Exception, TimeIsUp) as exc:  # noqa: BLE001 - whatever it is, the node must not be drained for it
        print(f"rad epilog: {exc}", file=sys.stderr)
    return Exit.OK


def _run(job: HookJob, config: Config) -> None:
    clock, run = SystemClock(), Path(config.paths.run)
    log = HookLog(config.paths.log, "epilog", job_id=job.job_id, restart=job.restart, clock=clock)
    folder = JobFolder(run, job.job_id)
    held: Reservation | None = None
    try:
        store = LedgerStore(run, clock=clock, boot_id=boot_id())
        held = store.release(job.job_id, restart=job.restart, deadline=Deadline(clock, LOCK_S))
    except RadError as exc:
        log.say(EventKind.NOT_RELEASED, str(exc))
    try:
        _stop_mps(run, job, clock)
        if folder.refusal() is None:
            _report(job, config, held, clock, log)
    except (RadError, OSError) as exc:
        log.say(EventKind.NOT_REPORTED, str(exc))
    finally:
        forget_job(run, job.job_id)
        folder.remove()
        log.say(EventKind.END)


def _stop_mps(run: Path, job: HookJob, clock: Clock) -> None:
    if (run / "mps").is_dir():
        from slurm_plugin.mps import Mps

        Mps(run, clock=clock).release(job.job_id)


def _report(job: HookJob, config: Config, held: Reservation | None, clock: Clock, log: HookLog) -> None:
    """Say how the job ended and run it again where that helps."""
    usage = read_job(Path(config.paths.run), job.job_id)
    outcome = outcome_of(job, config, held=held, usage=usage, deadline=Deadline(clock, TAILS_S), log=log)
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
    if config.features.history:
        spool_peak(config, job, booking, outcome, usage, now_s=clock.now_s())
    recovery = next_attempt(booking, outcome, settings) if config.features.recovery else None
    slurm_conf = find_slurm_conf(config.paths.slurm_conf, os.environ)
    if recovery is None:
        if config.features.accounting and config.mode == "enforce" and has_slurmdbd(slurm_conf):
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
