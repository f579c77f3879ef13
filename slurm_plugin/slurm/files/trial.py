"""Start a real slurmctld with new files before they replace the old ones, and find out why it does not start.

It has a folder and a network of its own, where it reaches no node, no slurmdbd and no other slurmctld, starts none of
the site's programs, and is killed as soon as it is ready. Where the present files do not start there either,
the trial says nothing about the new ones.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import re
import shutil
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.errors import CommandError, ConfigError
from slurm_plugin.core.process.run import find_program, has_program, run, spawn_daemon
from slurm_plugin.slurm.environment import slurm_environment
from slurm_plugin.slurm.files.conf_lines import bytes_of, read_lines, settings_in, text_of

START_S = 20.0
"""How long one start may take. It takes a second, and more with thousands of nodes."""
_PAUSE_S = 0.05
_ANSWER_S = 5.0
_OWN = """\
SlurmctldHost={host}(127.0.0.1)
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/pid
SlurmctldDebug=info
MailProg=/bin/true
"""
_PROGRAM = re.compile(r"\w*program|slurmctldprimaryo(n|ff)prog")
_LEFT_OUT = re.compile(
    r"slurmctld(host|addr|port|parameters|pidfile|debug|logfile|syslogdebug)|controlmachine|controladdr"
    r"|backup(controller|addr)|statesavelocation|slurmsched\w+|debugflags|prologslurmctld|epilogslurmctld|mailprog"
    r"|accountingstorage(host|backuphost|pass|port|type|enforce|user|loc|externalhost|parameters|tres)|jobcomp\w+"
    r"|priority\w+|federationparameters|communicationparameters|metrics\w+|burstbuffertype"
)
"""Settings that lead to other machines, to files of the running slurmctld, or that need slurmdbd."""
_OF_ACCOUNTS = re.compile(r"(?i)\s(TRESBillingWeights|(allow|deny)?QOS)\s*=\s*(\"[^\"]*\"|\S*)")
"""What a partition has only with slurmdbd."""
_FATAL = re.compile(r"fatal: (.+)")
_READY = "rad: slurmctld answers"
_ADDRESS = "192.0.2.1"
"""An address of its own (RFC 5737): with 127.0.0.1 alone Slurm resolves no name (getaddrinfo(3), AI_ADDRCONFIG)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """Result of a trial.

    Attributes:
        fatal: Why slurmctld does not start with the new files; "" if it does, or if that is not known.
        unknown: Why that is not known; "" if it is.
    """

    fatal: str = ""
    unknown: str = ""


def try_start(
    slurm_conf: Path, after: Mapping[Path, str], *, timeout_s: float = START_S, program: str = "slurmctld"
) -> TrialResult:
    """Return whether slurmctld starts with new files.

    Args:
        slurm_conf: The site's slurm.conf.
        after: New text of files, those of RAD included; all others are as they are.
        timeout_s: How long one start may take.
        program: slurmctld.
    """
    if os.geteuid() != 0 or not (has_program(program) and has_program("unshare")):
        return TrialResult(unknown="slurmctld is not installed here, or this does not run as root")
    try:
        new = _why_not(slurm_conf, after, timeout_s, program)
        now = _why_not(slurm_conf, {}, timeout_s, program) if new else ""
    except (OSError, CommandError, KeyError) as exc:
        return TrialResult(unknown=f"slurmctld could not be started: {exc}")
    if now:
        return TrialResult(unknown=f"slurmctld does not start here with the present files either: {now}")
    return TrialResult(fatal=new)


def private_conf(lines: Iterable[str], *, host: str, folder: Path) -> str:
    """Return slurm.conf of the trial: alone, with each node at this machine's own address.

    Args:
        lines: The site's slurm.conf as Slurm reads it, with the lines of included files.
        host: Name of this machine.
        folder: The trial's folder.

    >>> print(private_conf(["ControlMachine=c", "ResumeProgram=/up", "NodeName=n[1-2] NodeAddr=n[1-2] CPUs=4"],
    ...     host="h", folder=Path("/t")).rpartition("SlurmctldHost")[0], end="")
    ResumeProgram=/bin/true
    NodeName=n[1-2]  CPUs=4 NodeAddr=127.0.0.1
    """
    kept = []
    for line in lines:
        name = re.split(r"[\s=]", line, maxsplit=1)[0].lower()
        if name == "nodename" and not re.match(r"(?i)nodename\s*=\s*default\b", line):
            kept.append(f"{re.sub(r'(?i)NodeAddr *= *[^ ]*', '', line)} NodeAddr=127.0.0.1")
        elif _PROGRAM.fullmatch(name):
            kept.append(f"{line.partition('=')[0]}=/bin/true")
        elif not _LEFT_OUT.fullmatch(name):
            kept.append(_OF_ACCOUNTS.sub("", line) if name == "partitionname" else line)
    return "\n".join([*kept, _OWN.format(host=host, folder=folder)])


def _why_not(slurm_conf: Path, after: Mapping[Path, str], timeout_s: float, program: str) -> str:
    """Return why slurmctld does not start; "" if it does."""

    def read(path: Path) -> str:
        return after[path] if path in after else text_of(path)

    lines = read_lines(slurm_conf, read)
    if lines is None:
        raise ConfigError(f"{slurm_conf}: cannot be read")
    user = settings_in(lines).get("slurmuser", "root").partition("(")[0]
    owner = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
    folder = Path(tempfile.mkdtemp(prefix="rad-trial-", dir="/run"))
    try:
        host = socket.gethostname().partition(".")[0]
        for each in (folder / "etc", folder / "state"):
            each.mkdir()
        _fill(folder / "etc", slurm_conf.parent, after)
        own = folder / "etc" / "slurm.conf"
        own.unlink(missing_ok=True)
        own.write_bytes(bytes_of(private_conf(lines, host=host, folder=folder)))
        for each in (folder, folder / "etc", folder / "state"):
            os.chown(each, owner.pw_uid, owner.pw_gid)
        return _started(find_program(program), own, folder / "log", timeout_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fill(folder: Path, site: Path, after: Mapping[Path, str]) -> None:
    """Fill a folder with links to the site's files, and with those that are new or changed."""
    for path in site.iterdir():
        if path.name != "rad":
            (folder / path.name).symlink_to(path)
    (folder / "rad").mkdir()
    for path in (site / "rad").iterdir() if (site / "rad").is_dir() else ():
        (folder / "rad" / path.name).symlink_to(path)
    for path, text in after.items():
        if path.is_relative_to(site) and (folder / path.relative_to(site)).parent.is_dir():
            own = folder / path.relative_to(site)
            if own.parent.resolve().is_relative_to(folder):  # not through a link into the site's folder
                own.unlink(missing_ok=True)
                own.write_bytes(bytes_of(text))


def _started(program: str, slurm_conf: Path, log: Path, timeout_s: float) -> str:
    clock = SystemClock()
    apart = ("unshare", "--net", "--ipc", "--pid", "--fork", "--kill-child")
    argv = (*apart, sys.executable, "-I", "-m", __name__, program, "-D", "-f", str(slurm_conf))
    pid = spawn_daemon(argv, env=slurm_environment(slurm_conf), log_path=log, uid=0, gid=0)
    deadline_s = clock.monotonic_s() + timeout_s
    ended = False
    try:
        while True:
            text = log.read_text(errors="replace")
            if found := _FATAL.search(text):
                return found[1]
            if _READY in text:
                return ""
            if ended:
                return (text.strip().splitlines() or ["it ended without a word"])[-1]
            if clock.monotonic_s() > deadline_s:
                return f"it is not ready after {timeout_s:g} s"
            ended = os.waitpid(pid, os.WNOHANG)[0] == pid
            clock.sleep(_PAUSE_S)
    finally:
        if not ended:
            with suppress(
                ProcessLookupError
            ):  # the group, since a slurmctld that became SlurmUser survives unshare
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def start_loopback() -> None:
    """Give the loopback device of a new network an address, and start it (netdevice(7))."""
    set_flags, set_address, up_and_running = 0x8914, 0x8916, 0x41
    address = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(_ADDRESS))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sH22x", b"lo", up_and_running))
        fcntl.ioctl(any_socket, set_address, struct.pack("16s16s8x", b"lo:0", address))


def _run_and_ask(program: Sequence[str]) -> int:
    """Start slurmctld in this network, print when it answers, and return its exit status when it ends.

    Not even its word that it runs as primary controller means that it has loaded all of its plugins.
    """
    start_loopback()
    pid = os.fork()
    if pid == 0:
        os.execv(program[0], list(program))
    clock = SystemClock()
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        with suppress(CommandError):
            if " UP" in run(["scontrol", "ping"], timeout_s=_ANSWER_S, env=dict(os.environ)):
                print(_READY, flush=True)
                signal.pause()  # until the caller ends them all
        clock.sleep(_PAUSE_S)


if __name__ == "__main__":
    sys.exit(_run_and_ask(sys.argv[1:]))
