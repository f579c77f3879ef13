"""Prolog of a GPU node: `python -I -m prolog --config /etc/rad/rad.toml`, as root, in slurmd's environment.

It always ends with status 0, because any other drains the node. A job that must not start here goes back into the
queue through the controller; a fault of ours leaves the job as Slurm would have run it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from prolog.demand import wanted_by
from prolog.environment import environment_of
from prolog.place import Node, place
from slurm_plugin.core.clock import Deadline, SystemClock
from slurm_plugin.core.config import Config, PartitionConfig
from slurm_plugin.core.errors import LedgerError, RadError
from slurm_plugin.core.events import EventKind
from slurm_plugin.core.exits import Exit
from slurm_plugin.core.hook_args import config_path
from slurm_plugin.core.job_folder import JobFolder
from slurm_plugin.core.last_good import config_in_force
from slurm_plugin.core.ledger_store import LedgerStore, boot_id
from slurm_plugin.core.log import HookLog
from slurm_plugin.core.supervise import LIMITS, hook_started_s, supervised
from slurm_plugin.slurm.conf_files import devices_confined, find_slurm_conf
from slurm_plugin.slurm.hook_env import HookJob

if (
    TYPE_CHECKING
):  # an ordinary job starts without Slurm's answers: what asks for them is loaded when it is needed
    from slurm_plugin.slurm.control import SlurmControl

SLURM_ANSWER_S = 2.0
"""Of the hook's five seconds, for one question to a controller that should answer in milliseconds."""

RELEASE_S = 0.5
"""For the lock, once the hook has failed already."""


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
        print(f"rad prolog: {exc}", file=sys.stderr)
    return Exit.OK


def _work(job: HookJob, started_s: float) -> int:
    """Start the job's run on this node; a fault of ours leaves the job alone, or puts it back."""
    found = config_in_force(config_path(sys.argv))
    config = found.config
    if config.mode == "off" or not config.features.placement:
        return Exit.OK
    node, log = _node(config), _log(job, config, started_s)
    if found.trouble:
        log.say(EventKind.LAST_GOOD_SETTINGS, found.trouble)
    settings = config.partition(job.partition) or config.partition_defaults
    try:
        _start(node, job, settings, log)
    except LedgerError as exc:
        _give_up(node, job, log, str(exc))
        _put_back(node, job, log, str(exc))
    except Exception as exc:  # noqa: BLE001 - a bug of ours must not keep the job from running
        _give_up(node, job, log, str(exc) if isinstance(exc, RadError | OSError) else repr(exc))
    log.say(EventKind.END)
    return Exit.OK


def _rescue(job: HookJob, why: str, started_s: float) -> int:
    """Take back what was begun: the work did not end in its time."""
    config = config_in_force(config_path(sys.argv)).config
    if config.mode == "off" or not config.features.placement:
        return Exit.OK
    node, log = _node(config), _log(job, config, started_s)
    _give_up(node, job, log, why)
    log.say(EventKind.OUT_OF_TIME, why)
    _put_back(node, job, log, why)
    log.say(EventKind.END)
    return Exit.OK


def _log(job: HookJob, config: Config, started_s: float) -> HookLog:
    return HookLog(
        config.paths.log,
        "prolog",
        job_id=job.job_id,
        restart=job.restart,
        clock=SystemClock(),
        start_s=started_s,
    )


def _put_back(node: Node, job: HookJob, log: HookLog, why: str) -> None:
    from prolog.put_back import may_put_back, put_back

    if node.config.mode == "enforce" and may_put_back(job):
        log.tell(put_back(node, job, f"its GPU could not be reserved ({why})", refuse=False))


def _start(node: Node, job: HookJob, settings: PartitionConfig, log: HookLog) -> None:
    """Place the job and leave its environment, or put it back."""
    wanted = wanted_by(job, node.config, settings, node.slurm)
    if wanted.demand is None:
        log.say(EventKind.LEFT_ALONE, "MIG")
        return
    placed = place(node, job, wanted.demand, settings)
    demand, gpus = wanted.demand, placed.placement.gpus
    source = f"{wanted.source} ({wanted.doubt})" if wanted.doubt else wanted.source
    choice = f"{source} {demand.kind}: {' '.join(gpus)} {placed.placement.reason}"
    policy = settings.policy if demand.kind == "shared" else "idle"
    if node.config.mode == "observe":
        log.say(EventKind.WOULD_PLACE, choice, policy=policy, gpus=gpus)
    elif placed.reservation is None:
        from prolog.put_back import put_back

        log.tell(put_back(node, job, placed.placement.reason, refuse=True))
    else:
        variables = environment_of(node, job, placed, settings, log)
        if wanted.shards is not None:
            variables["RAD_SHARDS"] = str(wanted.shards)
        JobFolder(node.run, job.job_id).write_environment(variables)
        log.say(EventKind.PLACED, choice, policy=policy, gpus=gpus)


def _give_up(node: Node, job: HookJob, log: HookLog, why: str) -> None:
    """Leave the job as Slurm would have run it; what it holds goes first, and then the log hears of it."""
    problem = ""
    try:
        node.store.release(job.job_id, restart=job.restart, deadline=Deadline(node.clock, RELEASE_S))
        JobFolder(node.run, job.job_id).remove()
    except (RadError, OSError) as exc:
        problem = str(exc)
    log.say(EventKind.LEFT_ALONE, why)
    if problem:
        log.say(EventKind.NOT_RELEASED, problem)


def _node(config: Config) -> Node:
    clock = SystemClock()
    slurm_conf = find_slurm_conf(config.paths.slurm_conf, os.environ)

    def slurm() -> SlurmControl:
        from slurm_plugin.slurm.commands import SlurmCommands

        return SlurmCommands(slurm_conf=str(slurm_conf or ""), timeout_s=SLURM_ANSWER_S)

    return Node(
        config=config,
        clock=clock,
        store=LedgerStore(Path(config.paths.run), clock=clock, boot_id=boot_id()),
        slurm=slurm,
        slurm_conf=os.environ.get("SLURM_CONF"),
        confined=devices_confined(slurm_conf),
    )


if __name__ == "__main__":
    sys.exit(main())
