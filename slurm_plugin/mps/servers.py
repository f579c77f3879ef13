"""All MPS daemons of a node, as Prolog and Epilog use them: add a job, remove it, repair."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from slurm_plugin.core.clock import Clock, Deadline, SystemClock
from slurm_plugin.core.errors import MpsError
from slurm_plugin.core.placement.server_keys import is_server_key, is_shared, user_of
from slurm_plugin.core.process.identity import Process
from slurm_plugin.core.units import to_mib_up
from slurm_plugin.mps.access import admit
from slurm_plugin.mps.daemon import ANSWER_S, LOG, Daemon
from slurm_plugin.mps.quarantine import caused_lately
from slurm_plugin.mps.state import State, locked, read_state, write_state

CONTROL = "nvidia-cuda-mps-control"

START_BUDGET_S = 3.0
"""Part of the hook's time: a daemon that has not answered by then is given up and the job runs without MPS."""

STOP_BUDGET_S = 2.0
"""How long a daemon may take to quit; its clients are gone when the last job's epilog runs."""

MOST_CLIENTS = 48
"""Processes that a server takes: 48 on every driver for Volta and later GPUs, 60 on some of the newest. The smaller
number costs a job a server of its own, the larger one could cost it its start (CUDA error 808)."""

SPARE_CLIENTS = 4
"""Slots kept for processes that a request does not show: a job may connect more than one from each of its tasks."""


class Mps:
    """The MPS daemons of one node.

    Every method may be repeated, and may follow a crash at any point of an earlier call.
    """

    def __init__(
        self,
        run_folder: Path,
        *,
        clock: Clock | None = None,
        control: str = CONTROL,
        start_budget_s: float = START_BUDGET_S,
        answer_s: float = ANSWER_S,
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            run_folder: paths.run.
            clock: Time, for deadlines.
            control: The control program, by name or absolute path.
            start_budget_s: How long `acquire` may take in total.
            answer_s: How long the control program may take for one command.
        """
        self._run, self._folder = run_folder, run_folder / "mps"
        self._clock = clock or SystemClock()
        self._control = control
        self._start_budget_s, self._answer_s = start_budget_s, answer_s

    @property
    def folder(self) -> Path:
        """Return the folder of the servers: GPU/KEY."""
        return self._folder

    def acquire(
        self,
        *,
        gpu: str,
        user_id: int,
        job_id: int,
        cap_bytes: int | None,
        gpu_bytes: int,
        key: str | None = None,
        processes: int = 1,
    ) -> dict[str, str]:
        """Add a job to a server of a GPU, which is started or repaired first where needed.

        A job that a server has no slot left for gets a server of its own, as does one that would share with a job of
        another user that caused a fault.

        Args:
            gpu: UUID of the GPU.
            user_id: The job's user, who may connect from now on.
            job_id: Slurm's job id.
            cap_bytes: The job's limit on the GPU, context included; None for no limit.
            gpu_bytes: Usable memory of the GPU: the server's limit as long as a job without a limit is on it.
            key: Key of the server (core/placement/server_keys.py); None for the user's.
            processes: Processes that the job may connect, as far as its request shows.

        Returns:
            Variables for the job, to be set together with CUDA_VISIBLE_DEVICES=<the GPU's UUID>.

        Raises:
            MpsError: No daemon answered in time. The job is not added and must run without these variables: a wrong
                pipe directory makes every CUDA call fail.
        """
        deadline = Deadline(self._clock, self._start_budget_s)
        own = f"j{job_id}"
        for name in dict.fromkeys((key or str(user_id), own)):
            daemon = self._daemon(self._folder / gpu / name)
            with locked(daemon.place, self._clock, deadline):
                before = read_state(daemon.place)
                if name != own and (
                    self._full(daemon, before, job_id, processes, deadline)
                    or self._unsafe(daemon, before, user_id)
                ):
                    continue
                after = before.with_job(job_id, cap_bytes=cap_bytes, user_id=user_id, processes=processes)
                self._add(daemon, before, after, gpu_bytes=gpu_bytes, deadline=deadline)
                break
        environment = {
            "CUDA_MPS_PIPE_DIRECTORY": str(daemon.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(daemon.log),
        }
        if cap_bytes is not None:
            environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={to_mib_up(cap_bytes)}M"
        return environment

    def _add(
        self, daemon: Daemon, before: State, after: State, *, gpu_bytes: int, deadline: Deadline
    ) -> None:
        """Let a daemon serve the jobs of a state, and admit their users; on an error all is as before."""
        limit_bytes = max(gpu_bytes if cap is None else cap for cap in after.jobs.values())
        alone = len(after.jobs) == 1
        try:
            state = self._serving(daemon, before, alone=alone, limit_bytes=limit_bytes, deadline=deadline)
            after = dataclasses.replace(after, daemon=state.daemon, server=state.server)
            write_state(daemon.place, after)  # first: what removes the job removes its user's access
            self._admit(daemon, after)
        except MpsError:
            if not before.jobs:
                self._stop(daemon, read_state(daemon.place))
            else:
                current = read_state(daemon.place)
                with contextlib.suppress(MpsError):
                    write_state(
                        daemon.place,
                        dataclasses.replace(before, daemon=current.daemon, server=current.server),
                    )
            raise

    def _full(self, daemon: Daemon, state: State, job_id: int, processes: int, deadline: Deadline) -> bool:
        """Return whether a server may have no slot left for a job's processes (CUDA error 808).

        A process that is not connected yet counts as its job's request says.
        """
        others = state.jobs.keys() - {job_id}
        if not others:
            return False
        expected = sum(state.processes.get(job, 1) for job in others)
        if state.server is not None and state.server.runs():
            with contextlib.suppress(MpsError):
                expected = max(expected, daemon.clients(state.server, deadline))
        return expected + processes + SPARE_CLIENTS > MOST_CLIENTS

    def _unsafe(self, daemon: Daemon, state: State, user_id: int) -> bool:
        """Return whether another user's job on a server has caused a fault, and may again."""
        others = {job: user for job, user in state.users.items() if user != user_id}
        return is_shared(daemon.place.name) and caused_lately(self._run, others, now_s=self._clock.now_s())

    def _admit(self, daemon: Daemon, state: State) -> None:
        """Let the users of a server's jobs reach its pipe, and no other user."""
        try:
            admit(daemon.pipe, state.users.values())
        except OSError as exc:
            raise MpsError(f"{daemon.pipe}: {exc.strerror}") from exc

    def release(self, job_id: int) -> None:
        """Remove a job from all daemons; a daemon that no job uses any more is stopped and its folders removed.

        Raises:
            MpsError: It could not be recorded; the next hook or the guard repeats it.
        """
        failures = []
        for place in self._places():
            jobs = read_state(place).jobs
            if jobs and job_id not in jobs:
                continue
            try:
                self._remove_from(place, job_id)
            except MpsError as exc:
                failures.append(exc)
        if failures:
            raise failures[0]

    def users(self) -> dict[tuple[str, str], dict[int, int]]:
        """Return the user of each job on each server, by GPU and key of the server."""
        return {(place.parent.name, place.name): dict(read_state(place).users) for place in self._places()}

    def caps(self) -> dict[tuple[str, int], int | None]:
        """Return the limit of each job that was given a server, by GPU and job; None for a job without a limit."""
        return {
            (place.parent.name, job): cap
            for place in self._places()
            for job, cap in read_state(place).jobs.items()
        }

    def uncapped(self) -> frozenset[int]:
        """Return the jobs whose daemon has ended: processes that they start from now on silently bypass MPS.

        Where only the server ended, the daemon starts another under the same limit.
        """
        states = [read_state(place) for place in self._places()]
        return frozenset(
            job for state in states for job in state.jobs if state.daemon is None or not state.daemon.runs()
        )

    def servers(self) -> dict[Process, tuple[str, frozenset[int]]]:
        """Return the servers that RAD started and their daemons, each with its GPU and its jobs.

        The jobs' clients end with either of the two.
        """
        states = [(place.parent.name, read_state(place)) for place in self._places()]
        return {
            one: (gpu, frozenset(state.jobs))
            for gpu, state in states
            for one in (state.daemon, state.server)
            if one is not None
        }

    def processes(self) -> frozenset[Process]:
        """Return the daemons and servers that RAD started."""
        return frozenset(self.servers())

    def _serving(
        self, daemon: Daemon, state: State, *, alone: bool, limit_bytes: int, deadline: Deadline
    ) -> State:
        """Return the state with a daemon and a server that answer, after starting or repairing them where needed.

        The state is recorded before the server starts, so that a crash leaves no unrecorded process running.
        """
        process = state.daemon
        if process is None or not process.runs():
            daemon.kill(state.server)  # its clients failed when their daemon ended (CUDA error 806)
            process = None
        elif not self._answers(daemon, deadline):
            if not alone:
                raise MpsError(f"MPS on {daemon.gpu} does not answer; ending it would end the jobs on it")
            daemon.kill(process)
            daemon.kill(state.server)
            process = None
        if process is None:
            process = daemon.start(deadline)
            state = dataclasses.replace(state, daemon=process, server=None)
            write_state(daemon.place, state)
        server = daemon.start_server(limit_bytes, deadline)
        return dataclasses.replace(state, server=server)

    def _answers(self, daemon: Daemon, deadline: Deadline) -> bool:
        try:
            daemon.servers(deadline)
        except MpsError:
            return False
        return True

    def _remove_from(self, place: Path, job_id: int) -> None:
        with locked(place, self._clock, Deadline(self._clock, STOP_BUDGET_S)):
            before, daemon = read_state(place), self._daemon(place)
            after = before.without(job_id)
            if after.jobs and daemon.pipe.is_dir():
                self._admit(daemon, after)  # before the job is removed: if this fails, it is repeated
            write_state(place, after)  # before it stops: no job is on it then
            if not after.jobs:
                self._stop(daemon, before)

    def _stop(self, daemon: Daemon, state: State) -> None:
        """End daemon and server and remove their folder; a leftover folder would mislead later clients."""
        deadline = Deadline(self._clock, STOP_BUDGET_S)
        if state.daemon is not None and state.daemon.runs():
            daemon.quit(state.daemon, deadline)
        daemon.kill(state.server)
        daemon.remove_folders()
        with contextlib.suppress(OSError):
            (daemon.place / "state.json").unlink(missing_ok=True)
            (daemon.place / LOG).unlink(missing_ok=True)
            daemon.place.rmdir()

    def _places(self) -> Iterator[Path]:
        return (
            path for path in sorted(self._folder.glob("*/*")) if path.is_dir() and is_server_key(path.name)
        )

    def _daemon(self, place: Path) -> Daemon:
        return Daemon(
            place=place,
            gpu=place.parent.name,
            user_id=user_of(place.name),
            control=self._control,
            answer_s=self._answer_s,
            clock=self._clock,
        )
