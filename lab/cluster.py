"""Start, use and stop a private Slurm with simulated GPUs, or with the machine's."""

from __future__ import annotations

import os
import pwd
import random
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from lab import accounts, config
from lab.daemons import TIME_FACTOR, Daemons, LabError, kill_leftovers, wait_until
from lab.files import is_user, munge_user, rewrite, write_files
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.core.clock import Clock, SystemClock
from slurm_plugin.core.errors import CommandError
from slurm_plugin.core.ledger.store import LedgerStore, boot_id
from slurm_plugin.core.process.run import SYSTEM_PATH, find_program, run

STATE = (
    ("sinfo", "-N", "-o", "%N %T %G %E"),
    ("squeue", "-o", "%i %u %P %T %r %b %R"),
    ("scontrol", "show", "node"),
)
"""Slurm commands whose output helps to analyse a failure."""


class Cluster:
    """One private cluster."""

    def __init__(self, place: Place, *, clock: Clock | None = None) -> None:
        self.place = place
        self.clock = clock or SystemClock()
        self.daemons = Daemons(place, self.clock)
        self.submissions = threading.Lock()
        """Locked while a job of a load is submitted, so that a fault can happen between two submissions."""
        self._lua_s = 0

    # --- starting -------------------------------------------------------------------------------------------------

    def up(self, spec: ClusterSpec) -> None:
        """Start the cluster and return when every node accepts jobs.

        Raises:
            LabError: Something did not start; the text names the log to read.
        """
        if os.geteuid() != 0:
            raise LabError("a private Slurm needs root: munged, slurmctld and jobs run as separate users")
        self.down()
        site = self._site(spec)
        write_files(self.place, spec, site)
        self.place.save(spec, site.ports)
        try:
            self._start(spec, site)
        except (LabError, CommandError) as exc:
            raise LabError(f"{exc}; the logs are in {self.place.log}") from exc

    def _site(self, spec: ClusterSpec) -> config.Site:
        match = re.search(r"(\d+)\.(\d+)", run(["slurmctld", "-V"], timeout_s=10))
        if match is None:
            raise LabError("slurmctld -V names no version")
        nodes = [name for node in spec.nodes for name in (node.name, config.web_of(node.name))]
        names = ["slurmctld", *nodes, *(accounts.PORTS if spec.accounts else ())]
        return config.Site(
            host=socket.gethostname().partition(".")[0],
            slurm_user="slurm" if is_user("slurm") else "root",
            slurm_version=(int(match[1]), int(match[2])),
            ports=dict(zip(names, _free_ports(len(names)), strict=True)),
        )

    def _start(self, spec: ClusterSpec, site: config.Site) -> None:
        place = self.place
        munge = munge_user()
        folder = place.munge_socket.parent
        folder.mkdir()
        os.chown(folder, pwd.getpwnam(munge).pw_uid, -1)
        files = {"socket": place.munge_socket, "key-file": place.etc / "munge.key"}
        files |= {f"{name}-file": folder / f"munged.{name}" for name in ("pid", "log", "seed")}
        options = [f"--{name}={path}" for name, path in files.items()]
        self.daemons.start(
            "munged", ["munged", "--foreground", "--force", *options], env=self.env(), user=munge
        )
        self.wait("munged listens", place.munge_socket.is_socket, 10)
        if spec.accounts:
            accounts.start(
                place, self.daemons, site.ports, user=site.slurm_user, env=self.env(), clock=self.clock
            )
        if spec.with_rad:
            self.start_radd()
        self.start_slurmctld()
        for node in spec.nodes:
            self.start_node(node)
            if spec.with_rad:
                self.start_monitor(node)
        self.wait("slurmctld answers", self.answers, 20)
        self.wait("nodes idle", lambda: self._idle() == {node.name for node in spec.nodes}, 20)

    def start_slurmctld(self) -> None:
        """Start slurmctld; it restores the state that an earlier one saved."""
        argv = ["slurmctld", "-D", "-f", str(self.place.slurm_conf)]
        self.daemons.start("slurmctld", argv, env=self.env())

    def restart_slurmctld(self) -> None:
        """Stop slurmctld if it runs, start it, and wait until every node has registered."""
        self.daemons.stop("slurmctld")
        self.start_slurmctld()
        self.wait_for_nodes()

    def wait_for_nodes(self) -> None:
        """Wait until slurmctld answers and every node has registered.

        Before that 22.05.8 may start a job without the GPU that it requested.
        """
        self.wait("slurmctld answers", self.answers, 30)
        unknown = "SlurmdStartTime=None"
        self.wait("all nodes register", lambda: unknown not in self.slurm("scontrol", "show", "node"), 60)

    def saved_since(self, began_s: float) -> bool:
        """Return whether slurmctld has saved its nodes, and its jobs since a time in Unix seconds.

        24.11.5 and 26.05.5 die of a segmentation fault where a job with shards was saved and its node was not.
        """
        folder = self.place.root / "spool" / "slurmctld"
        nodes, jobs = folder / "node_state", folder / "job_state"
        return nodes.exists() and jobs.exists() and jobs.stat().st_mtime > began_s

    def start_node(self, node: NodeSpec) -> None:
        """Start the slurmd of one node."""
        argv = ["slurmd", "-D", "-f", str(self.place.slurm_conf), "-N", node.name]
        self.daemons.start(f"slurmd-{node.name}", argv, env=self.env())

    def start_radd(self) -> None:
        """Start radd as the user that slurmctld runs as, and wait until it answers."""
        argv = [f"{self.place.venv}/bin/radd", "--config", str(self.place.etc / "rad.toml")]
        self.daemons.start("radd", argv, env=self.env(), user="slurm" if is_user("slurm") else "root")
        self.wait("radd listens", self.radd_answers, 20)

    def restart_radd(self) -> None:
        """Stop radd if it runs, start it, and let the shim query it at once."""
        self.daemons.signal("radd", signal.SIGCONT)
        self.daemons.stop("radd")
        self.start_radd()
        self.reset_breaker()

    def radd_answers(self) -> bool:
        """Return whether radd answers a ping."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1)
                connection.connect(str(self.place.run / "radd.sock"))
                connection.sendall(b'{"op":"ping"}\n')
                return b"pong" in connection.recv(100)
        except OSError:
            return False

    def reset_breaker(self) -> None:
        """Make slurmctld load job_submit.lua again, as a change of the file does; it then forgets radd's failures.

        slurmctld compares whole seconds, so each call must use a second that it has not seen.
        """
        path = self.place.etc / "job_submit.lua"
        self._lua_s = max(self._lua_s, int(path.stat().st_mtime)) + 1
        os.utime(path, (self._lua_s, self._lua_s))

    def start_monitor(self, node: NodeSpec) -> None:
        """Start the rad-monitor of one node."""
        argv = [
            f"{self.place.venv}/bin/rad-monitor",
            "--config",
            str(self.place.etc / f"rad.{node.name}.toml"),
        ]
        self.daemons.start(f"monitor-{node.name}", argv, env=self.env())

    def answers(self) -> bool:
        """Return whether slurmctld answers."""
        try:
            return "UP" in self.slurm("scontrol", "ping")
        except CommandError:
            return False

    def _idle(self) -> set[str]:
        try:
            rows = [
                row.split()
                for row in self.slurm("sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %T").splitlines()
            ]
        except CommandError:
            return set()
        return {name for name, state in rows if state == "idle"}

    def wait(self, what: str, condition: Callable[[], bool], timeout_s: float) -> None:
        """Return as soon as a condition holds; LabError if it does not in time, which is longer on a busy machine."""
        wait_until(what, condition, timeout_s=timeout_s * TIME_FACTOR, clock=self.clock)

    # --- using ----------------------------------------------------------------------------------------------------

    def env(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment in which Slurm's commands reach this cluster and fake trainings find their GPUs.

        The GPUs are simulated if there are any; a training without them in its environment uses the real ones.
        """
        path = ":".join((f"{self.place.venv}/bin", *SYSTEM_PATH))
        base = {"PATH": path, "LC_ALL": "C.UTF-8", "SLURM_CONF": str(self.place.slurm_conf)}
        folder = self.place.root / "gpus"
        simulated = {"RAD_SIMULATED_GPUS": str(folder)} if folder.is_dir() else {}
        return base | simulated | dict(extra or {})

    def slurm(
        self,
        *argv: str,
        user: str | None = None,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> str:
        """Run a command on the cluster and return what it printed.

        Args:
            argv: For example "sbatch", "job.sh".
            user: The user to run it as; None for root.
            stdin: Text for its standard input.
            env: Variables to add.
            timeout_s: When to give up; later on a busy machine.

        Raises:
            CommandError: It failed.
        """
        command = ("runuser", "-u", user, "--", find_program(argv[0]), *argv[1:]) if user else argv
        return run(command, timeout_s=timeout_s * TIME_FACTOR, env=self.env(env), stdin=stdin)

    def status(self) -> str:
        """Return as text what runs."""
        running = self.daemons.running()
        if not running:
            return f"{self.place.root}: nothing runs"
        lines = [f"{name:<16} pid {pid}" for name, pid in running.items()]
        return "\n".join(
            [
                *lines,
                self.slurm(
                    "sinfo", "-N", "-p", "gpu", "-O", "NodeList:8 ,StateLong:10 ,Gres:38 ,GresUsed:70"
                ),
            ]
        )

    def allocations(self, node: str) -> list[dict[str, Any]]:
        """Return the jobs' allocations on a node's GPUs, from its ledger."""
        store = LedgerStore(self.place.run / node, clock=self.clock, boot_id=boot_id())
        return [asdict(allocation) for allocation in store.read().ledger.allocations]

    def set_rad(self, key: str, value: str, *, restart: bool = True) -> None:
        """Set a key in every rad.toml of the cluster, where the template has it, and make radd read it."""
        for path in self.place.etc.glob("rad*.toml"):
            text, count = re.subn(rf"(?m)^#?{key} = .*$", f"{key} = {value}", path.read_text(), count=1)
            if not count:
                raise LabError(f"{path} has no {key}")
            rewrite(path, text)
        if restart:
            self.restart_radd()

    @contextmanager
    def changed_rad_toml(self) -> Iterator[None]:
        """Restore every rad.toml at the end."""
        before = {path: path.read_text() for path in self.place.etc.glob("rad*.toml")}
        try:
            yield
        finally:
            for path, text in before.items():
                rewrite(path, text)
            self.restart_radd()

    def state(self) -> str:
        """Return Slurm's current state, for the report of a failure; a command that does not answer is marked so."""
        parts = []
        for argv in STATE:
            parts.append(f"==> {' '.join(argv)} <==")
            try:
                parts.append(self.slurm(*argv).rstrip())
            except CommandError as exc:
                parts.append(f"no answer: {exc}")
                break  # the others would not answer either, each after the same wait
        return "\n".join(parts)

    def logs(self, lines: int) -> str:
        """Return the last lines of every log."""
        parts = []
        for path in sorted([*self.place.log.glob("*"), *(self.place.run / "munge").glob("*.log")]):
            tail = path.read_text(errors="replace").splitlines()[-lines:]
            parts += [f"==> {path.name} <==", *tail] if tail else []
        return "\n".join(parts)

    # --- stopping -------------------------------------------------------------------------------------------------

    def down(self) -> None:
        """Stop everything that was started here; the logs stay. Safe to repeat."""
        if self.daemons.pid("slurmctld") is not None:
            self.cancel_jobs()
        for name in sorted(self.daemons.running(), reverse=True):  # slurmd, slurmctld, radd, munged
            self.daemons.stop(name)
        kill_leftovers(self.place.slurm_conf)

    def cancel_jobs(self) -> None:
        """End every job and wait until it is gone; a controller that does not answer is skipped."""
        try:
            # %F, an array's job id: `scancel --full` refuses the id of one of its tasks.
            jobs = self.slurm("squeue", "-h", "-o", "%F", timeout_s=10).split()
            if jobs:
                self.slurm("scancel", "--full", *sorted(set(jobs)), timeout_s=10)
                self.wait("jobs end", lambda: not self.slurm("squeue", "-h"), 30)
        except (CommandError, LabError):
            return


def _free_ports(count: int) -> list[int]:
    """Return unused ports, all different, below those that Linux gives to connections while a daemon restarts."""
    found: dict[int, socket.socket] = {}
    while len(found) < count:
        port = random.randrange(20_000, 32_000)
        with suppress(OSError):
            found[port] = socket.create_server(("", port))
    for each in found.values():
        each.close()
    return list(found)
