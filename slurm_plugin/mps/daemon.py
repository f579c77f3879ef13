"""One MPS control daemon: start it, query it, limit its clients, stop it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.core.clock import Clock, Deadline
from slurm_plugin.core.errors import CommandError, MpsError
from slurm_plugin.core.placement.server_keys import LONGEST_KEY
from slurm_plugin.core.process.identity import Process, owner_of
from slurm_plugin.core.process.run import SYSTEM_PATH, run, spawn_daemon
from slurm_plugin.core.units import to_mib_up
from slurm_plugin.mps.access import close_files

LOG = "daemon.log"
"""Output of daemon and server; with `-f` that is their whole log. mps/log.py reads it and keeps it short."""

_POLL_S = 0.02
ANSWER_S = 2.0
"""At most, for one query; a daemon that takes longer hangs."""
_LONGEST_SOCKET_PATH = 107  # unix(7): sun_path holds 108 bytes, a closing zero among them
_LONGEST_SOCKET_NAME = "/control_privileged"
LONGEST_RUN_FOLDER = _LONGEST_SOCKET_PATH - len(
    f"/mps/GPU-{36 * 'x'}/{LONGEST_KEY * 'x'}/pipe{_LONGEST_SOCKET_NAME}"
)
"""Bytes that `paths.run` may have, whichever server a job gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """One daemon on one GPU, whether it runs or not.

    Root runs it, so its users can neither lift a limit nor end it, and only root can enter its folders until access.py
    admits others to its pipe.

    Attributes:
        place: RUN/mps/<GPU>/<key of the server>.
        gpu: UUID of the GPU, the only one it sees.
        user_id: The one user that it serves by its key; None for a server that several may share.
        control: The control program, by name or absolute path.
        clock: Time.
        answer_s: Seconds that the control program may take for one command.
    """

    place: Path
    gpu: str
    user_id: int | None
    control: str
    clock: Clock
    answer_s: float = ANSWER_S

    @property
    def pipe(self) -> Path:
        """Return CUDA_MPS_PIPE_DIRECTORY."""
        return self.place / "pipe"

    @property
    def log(self) -> Path:
        """Return CUDA_MPS_LOG_DIRECTORY."""
        return self.place / "log"

    def start(self, deadline: Deadline) -> Process:
        """Start the daemon in fresh folders and wait until it answers.

        Raises:
            MpsError: It did not start or answer; nothing of it is left running.
        """
        if len(os.fsencode(f"{self.pipe}{_LONGEST_SOCKET_NAME}")) > _LONGEST_SOCKET_PATH:
            raise MpsError(f"{self.pipe}: too long for a unix socket; set paths.run to a shorter folder")
        self.remove_folders()
        try:
            self.place.mkdir(parents=True, exist_ok=True)
            self.place.chmod(0o711)
            for folder in (self.pipe, self.log):
                folder.mkdir(mode=0o700)
            (self.place / LOG).touch(mode=0o600)
            pid = spawn_daemon(
                [self.control, "-f", "-multiuser-server"],
                env={**self._environment(), "CUDA_VISIBLE_DEVICES": self.gpu},
                log_path=self.place / LOG,
                uid=os.geteuid(),
                gid=os.getegid(),
            )
        except (OSError, CommandError) as exc:
            raise MpsError(f"MPS on {self.gpu} did not start: {exc}") from exc
        process = Process.running(pid)
        while process is not None and process.runs():
            try:
                self.ask("get_server_list", deadline)
            except MpsError as exc:
                if deadline.passed():
                    self.kill(process)
                    raise MpsError(f"MPS on {self.gpu} started but does not answer: {exc}") from exc
                self.clock.sleep(_POLL_S)
            else:
                close_files(self.pipe)
                return process
        raise MpsError(f"MPS on {self.gpu} ended at once; see {self.place / LOG}")

    def ask(self, command: str, deadline: Deadline) -> str:
        """Send the daemon a command and return its answer.

        Args:
            command: A line for the control daemon: "get_server_list".
            deadline: By when it must be over.

        Raises:
            MpsError: There is no daemon, it refused or it did not answer in time.
        """
        try:
            return run(
                [self.control],
                timeout_s=max(_POLL_S, min(self.answer_s, deadline.remaining_s())),
                env=self._environment(),
                stdin=f"{command}\n",
            )
        except CommandError as exc:
            raise MpsError(str(exc)) from exc

    def servers(self, deadline: Deadline) -> tuple[int, ...]:
        """Return the pids of the daemon's servers: one, or none before the first client.

        Raises:
            MpsError: The daemon does not answer.
        """
        return tuple(int(word) for word in self.ask("get_server_list", deadline).split() if word.isdigit())

    def clients(self, server: Process, deadline: Deadline) -> int:
        """Return the number of processes that are connected to a server.

        Args:
            server: The server.
            deadline: By when it must be over.

        Raises:
            MpsError: The daemon does not answer.
        """
        return len(self.ask(f"get_client_list {server.pid}", deadline).split())

    def start_server(self, limit_bytes: int, deadline: Deadline) -> Process:
        """Start the server, if there is none, and set the limit of every later client.

        Args:
            limit_bytes: Device memory of one client, its context included.
            deadline: When to give up.

        Raises:
            MpsError: There is no server, so the GPU cannot be used through MPS.
        """
        limit = f"0 {to_mib_up(limit_bytes)}M"
        self.ask(f"set_default_device_pinned_mem_limit {limit}", deadline)
        if not self.servers(deadline):
            self.ask(f"start_server -uid {os.geteuid()}", deadline)
        while True:
            processes = [Process.running(pid) for pid in self.servers(deadline)]
            server = next((process for process in processes if process is not None), None)
            if server is not None:
                self.ask(f"set_device_pinned_mem_limit {server.pid} {limit}", deadline)
                return server
            if deadline.passed():
                raise MpsError(f"MPS on {self.gpu} has no server; see {self.log / 'control.log'}")
            self.clock.sleep(_POLL_S)

    def quit(self, process: Process, deadline: Deadline) -> None:
        """Ask the daemon to end, and end it by its pid if it does not.

        Args:
            process: The daemon, as it was started.
            deadline: Until when it may end by itself.
        """
        try:
            self.ask("quit", deadline)
        except MpsError:
            self.kill(process)
        while process.runs() and not deadline.passed():
            self.clock.sleep(_POLL_S)
        self.kill(process)

    def kill(self, process: Process | None) -> None:
        """Kill a process of this MPS, if it is still the same one; that of an older version runs as the user."""
        if process is not None and owner_of(process.pid) in (os.geteuid(), self.user_id):
            process.kill()

    def remove_folders(self) -> None:
        """Remove what clients could mistake for a running daemon."""
        for folder in (self.pipe, self.log):
            shutil.rmtree(folder, ignore_errors=True)

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": ":".join(SYSTEM_PATH),
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self.log),
        }
