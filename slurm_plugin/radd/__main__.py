"""radd: answers job_submit.lua in well under a millisecond, and starts recovered jobs."""

from __future__ import annotations

import gc
import logging
import os
import pwd
import signal
from pathlib import Path

import click

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config.last_good import config_in_force
from slurm_plugin.core.config.load import DEFAULT_PATH
from slurm_plugin.core.entry_point import plain_end
from slurm_plugin.core.errors import RadError
from slurm_plugin.core.logs.daemon_log import log_events, log_to_stderr
from slurm_plugin.core.process.systemd import inherited_listener, notify
from slurm_plugin.radd.history.accounts import AccountsReader
from slurm_plugin.radd.protocol.reply_log import log_reply
from slurm_plugin.radd.protocol.server import Server
from slurm_plugin.radd.requeued.position_keeper import PositionKeeper
from slurm_plugin.radd.requeued.priority_boosts import PriorityBooster
from slurm_plugin.radd.requeued.release import Releaser
from slurm_plugin.radd.service import Service
from slurm_plugin.radd.submission.reload import Reloader
from slurm_plugin.slurm.backend import open_control
from slurm_plugin.slurm.files.conf_files import find_slurm_conf, has_slurmdbd
from slurm_plugin.slurm.queries.accounting import Accounts

log = logging.getLogger("radd")
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config", default=DEFAULT_PATH, show_default=True, type=click.Path(path_type=Path), help="rad.toml."
)
@click.option("--slurm-user", default="slurm", show_default=True, help="User that slurmctld runs as.")
@click.version_option(package_name="rad-slurm")
def main(config: Path, slurm_user: str) -> None:
    """Decide the booking of each submission. SIGHUP reloads rad.toml; SIGTERM stops it."""
    log_to_stderr()
    # Threads inherit this; only run() handles them.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        with plain_end("radd"):
            run(config, slurm_user)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run(config_path: Path, slurm_user: str) -> None:
    """Serve until a signal arrives.

    Args:
        config_path: Path of rad.toml.
        slurm_user: Name of the user that slurmctld runs as; only it and root are answered.

    Raises:
        RadError: radd cannot start.
    """
    clock = SystemClock()
    config = config_in_force(config_path).config
    log_events(Path(config.paths.log), "radd")
    slurm = open_control(config, clock)
    in_force = Reloader(config_path, slurm, clock)
    booster = PriorityBooster(Path(config.paths.state, "boosts.json"), slurm, clock, lambda: in_force.config)
    keeper = PositionKeeper(slurm, clock, booster, lambda: in_force.config)
    releaser = Releaser(slurm, clock, booster, keeper, key=lambda: in_force.key)
    service = Service(in_force, releaser, clock)
    slurm_uids = _uid_of(slurm_user)
    socket_path = Path(in_force.config.paths.socket)
    server = Server(
        socket_path,
        service.handle,
        trusted_uids=frozenset({0, os.geteuid(), *slurm_uids}),
        clock=clock,
        owner_uid=next(iter(slurm_uids), None),
        listener=inherited_listener(socket_path, os.environ),
        after=log_reply,
    )
    server.bind()
    in_force.leave_fallback()  # before the first answer, in case radd dies after it
    server.start()
    releaser.start()
    accounts = _accounts_of(in_force)
    if accounts is not None:
        accounts.start()
    gc.freeze()  # a full collection would cost a submission some 10 ms
    log.info("listening on %s, mode %s", server.path, in_force.config.mode)
    notify(_ready(in_force), os.environ)
    while signal.sigwait(_SIGNALS) == signal.SIGHUP:
        notify("RELOADING=1", os.environ)
        try:
            in_force.reload()
        except RadError as exc:
            log.error("rad.toml not applied, the old one stays in force: %s", exc)
        notify(_ready(in_force), os.environ)
    notify("STOPPING=1", os.environ)
    server.stop()
    releaser.stop()
    if accounts is not None:
        accounts.stop()
    service.stop()
    log.info("stopped")


def _ready(in_force: Reloader) -> str:
    return f"READY=1\nSTATUS=answers submissions, mode {in_force.config.mode}"


def _accounts_of(in_force: Reloader) -> AccountsReader | None:
    slurm_conf = find_slurm_conf(in_force.config.paths.slurm_conf, os.environ)
    if not has_slurmdbd(slurm_conf):
        return None
    return AccountsReader(Accounts(slurm_conf), in_force.peaks, lambda: in_force.config)


def _uid_of(user: str) -> tuple[int, ...]:
    try:
        return (pwd.getpwnam(user).pw_uid,)
    except KeyError:
        return ()


if __name__ == "__main__":
    main()
