"""rad-monitor: reads every GPU of a node once a second and writes the results where hooks find them.

It may be stopped and started at any time: no program sends it requests, and each job's record continues from its file.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from slurm_plugin.core.clock import Clock, SystemClock
from slurm_plugin.core.config.in_use import in_use
from slurm_plugin.core.config.last_good import config_in_force
from slurm_plugin.core.config.load import DEFAULT_PATH, Config, located
from slurm_plugin.core.entry_point import plain_end
from slurm_plugin.core.errors import ConfigError, DeviceError, LedgerError, SettingError
from slurm_plugin.core.exits import Exit
from slurm_plugin.core.ledger.store import LedgerStore, boot_id
from slurm_plugin.core.logs.daemon_log import PLAIN, about, log_events, log_to_stderr
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.process.systemd import notify
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.monitor.gpus.source import lasting_telemetry
from slurm_plugin.monitor.idle import idle_jobs
from slurm_plugin.monitor.monitor import Exporter, Monitor, SampleJudge
from slurm_plugin.monitor.reconciler import Reconciler
from slurm_plugin.node.node import Node

log = logging.getLogger("rad-monitor")

INTERVAL_S = 1.0
"""Thesis, section 6.2.2: one sample a second."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal says to stop."""
    parser = argparse.ArgumentParser(prog="rad-monitor", description="Watch the GPUs of this node.")
    parser.add_argument("--config", type=Path, default=DEFAULT_PATH, help="rad.toml")
    parser.add_argument("--once", action="store_true", help="take one sample, print it and end")
    parser.add_argument(
        "--metrics", metavar="[ADDRESS:]PORT", help="serve Prometheus and rad top there; else telemetry.serve"
    )
    options = parser.parse_args(argv)
    with plain_end("rad-monitor"):
        _run(options)
    return Exit.OK


def _run(options: argparse.Namespace) -> None:
    found = config_in_force(options.config)
    config = found.config
    log_to_stderr(PLAIN)
    if not options.once:
        log_events(Path(config.paths.log), "monitor")
    if found.trouble:
        log.warning("%s", found.trouble, extra=about(EventKind.LAST_GOOD_SETTINGS))
    clock = SystemClock()
    run = Path(config.paths.run)
    monitor = Monitor(
        lasting_telemetry(config.telemetry, clock),
        run,
        clock=clock,
        window_s=config.telemetry.window_s,
        store=LedgerStore(run, clock=clock, boot_id=boot_id()),
        exporter=_exporter(options, config),
        guard=None if options.once else _guard(config, clock),
        guarded=config.guarded,
        sliced=config.sliced,
        settings=in_use(config, options.config),
        idle=lambda ledger, usages: idle_jobs(ledger, usages, config),
    )
    if options.once:
        for reading in monitor.sample():
            print(reading)
        return
    stopped: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.append(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    reconciler = Reconciler(Node.here(config, os.environ), shared_s=monitor.shared_s, log_event=_log_event)
    if config.places:
        reconciler.start()
    while True:
        notify(f"READY=1\nSTATUS=samples GPUs, mode {config.mode}", os.environ)
        watch(monitor, clock, stopped=stopped, look=reconciler.look)
        if signal.SIGTERM in stopped or signal.SIGINT in stopped:
            notify("STOPPING=1", os.environ)
            return
        stopped.clear()
        notify("RELOADING=1", os.environ)
        _begin_again(options.config)


def _begin_again(path: Path) -> None:
    """Restart this program with the current settings. Nothing is lost: all its state is in files.

    It returns if the settings are invalid: then the previous ones stay in force.
    """
    try:
        found = config_in_force(path)
        trouble = found.trouble
    except ConfigError as exc:
        trouble = str(exc)
    if trouble:
        log.error("not applied: %s", trouble)
        return
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def watch(
    monitor: Monitor,
    clock: Clock,
    *,
    stopped: Sequence[int],
    look: Callable[[Sequence[GpuReading]], None] | None = None,
) -> None:
    """Sample once a second, on the second, until `stopped` is not empty; log each new error once, a bug among them.

    Args:
        monitor: Takes the samples.
        clock: Time.
        stopped: Not empty once it is time to end.
        look: Gets each sample's readings.
    """
    trouble = ""
    next_s = clock.monotonic_s()
    while not stopped:
        try:
            readings = monitor.sample()
            if look is not None:
                look(readings)
            message, bug = "", None
        except (DeviceError, LedgerError) as exc:
            message, bug = str(exc), None
        except Exception as exc:  # noqa: BLE001 - over what a user's process shows, each monitor would end again
            message, bug = f"internal error in a sample: {exc!r}", exc
        if message != trouble:
            level = logging.WARNING if message else logging.INFO
            log.log(level, "%s", message or "all is well again", exc_info=bug)
            trouble = message
        next_s = max(next_s + INTERVAL_S, clock.monotonic_s())
        clock.sleep(max(0.0, next_s - clock.monotonic_s()))


def _guard(config: Config, clock: Clock) -> SampleJudge | None:
    if config.mode == "off":
        return None
    from slurm_plugin.guard.notify import notify as notify_owner
    from slurm_plugin.guard.stop import stop
    from slurm_plugin.guard.watch import Guard

    return Guard(config, clock=clock, stop=stop, notify=lambda one: notify_owner(one, config.paths))


def _log_event(kind: EventKind, line: str) -> None:
    """Log a line of the reconciler."""
    level = logging.WARNING if kind == EventKind.TROUBLE else logging.INFO
    log.log(level, "%s", line, extra=about(kind))


def _exporter(options: argparse.Namespace, config: Config) -> Exporter | None:
    """Return what serves over HTTP; an unusable address in rad.toml does not stop the GPU monitoring."""
    address = options.metrics or ("" if options.once else config.telemetry.serve)
    if not address:
        return None
    from slurm_plugin.monitor.export.web import serve

    try:
        return serve(address, Path(config.paths.log))
    except ConfigError as exc:
        if options.metrics:
            raise
        key = "telemetry.serve"
        log.error("%s", located(SettingError("rad.toml", key, f"{key}: {exc}"), options.config))
        return None


if __name__ == "__main__":
    sys.exit(main())
