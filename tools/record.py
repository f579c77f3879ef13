"""Record a terminal: commands that really run on a private Slurm, and their real output and timing.

The result is an asciicast, version 2 (docs.asciinema.org/manual/asciicast/v2). Only the typing is made up: letters
appear at a steady pace, and long waits are cut, with a line that says so.
"""

from __future__ import annotations

import json
import os
import pty
import pwd
import select
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

from lab.cluster import Cluster
from lab.jobs import ENDED, Jobs
from lab.place import ClusterSpec, NodeSpec
from slurm_plugin.core.clock import Clock
from slurm_plugin.core.config.load import load_config
from slurm_plugin.core.process.run import run as start
from tools.screen import as_svg

COLUMNS, ROWS = 108, 30
LETTER_S, THINK_S = 0.035, 1.2
USERS = ("alice", "bob", "carol")
"""Their jobs are shown. Accounts that this machine lacks are made for the recording."""
USER, ROOT = "\x1b[1;32malice@login\x1b[0m:~$ ", "\x1b[1;31mroot@n0\x1b[0m:~# "
WAIT_S = 90.0
SEEN_S = 2.5
"""Time until rad-monitor has seen the jobs."""
STEADY_S = 45.0
"""Time until SM activity, a mean over some seconds, is that of the jobs."""
CAST, TOP = Path("docs") / "img" / "first_job.cast", Path("docs") / "img" / "rad_top.svg"
ON_SCREEN = (
    ("memory=4G", "2.2G", "0.20"),
    ("memory=6G", "4.3G", "0.28"),
    ("memory=20G", "17G", "0.45"),
    ("memory=12G", "9G", "0.35"),
    ("policy=exclusive", "30G", "0.90"),
)
"""Jobs in the picture of `rad top`: directive, memory used, SM activity."""


@dataclass
class Recording:
    """The events of a recording."""

    events: list[tuple[float, str]] = field(default_factory=list)
    at_s: float = 0.0

    def show(self, text: str, after_s: float) -> None:
        """Add output, with its delay after the previous event."""
        self.at_s += after_s
        self.events.append((self.at_s, text))

    def type(self, command: str, *, prompt: str) -> None:
        """Add a prompt and a command, letter by letter."""
        self.show(prompt, 0.0)
        for letter in command:
            self.show(letter, LETTER_S)
        self.show("\r\n", LETTER_S)

    def cast(self, title: str) -> str:
        """Return the asciicast."""
        head = {
            "version": 2,
            "width": COLUMNS,
            "height": ROWS,
            "title": title,
            "env": {"TERM": "xterm-256color"},
        }
        lines = [json.dumps(head), *(json.dumps([round(at, 3), "o", text]) for at, text in self.events)]
        return "\n".join(lines) + "\n"


def record(cluster: Cluster, checkout: Path) -> Path:
    """Record a user's first job, and a second one that shares its GPU; and draw a screen of `rad top`.

    Args:
        cluster: The cluster to start, with one node of four simulated GPUs.
        checkout: Location of the examples and of the recording.

    Returns:
        The file.
    """
    tape, folder = Recording(), cluster.place.root / "work"
    made = [user for user in USERS if not _has(user)]
    try:
        for user in made:
            start(["useradd", "--system", "--no-create-home", user], timeout_s=WAIT_S)
        cluster.up(ClusterSpec(nodes=(NodeSpec(name="n0"),)))
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(checkout / "examples", folder)
        folder.chmod(0o1777)
        env = {**cluster.env(), "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "HOME": str(folder)}
        env["RAD_CONFIG"] = str(cluster.place.etc / "rad.toml")

        def run(command: str) -> None:
            tape.type(command, prompt=USER)
            argv = ["runuser", "-u", USERS[0], "--", "sh", "-c", f"cd {folder}; {command}"]
            _played(tape, argv, env, cluster.clock)
            tape.show("", THINK_S)

        run("cat share_resnet18.sh")
        run("rad-estimate share_resnet18.sh")
        run("sbatch share_resnet18.sh")
        run("sbatch share_encoder.sh")
        jobs = Jobs(cluster, folder)
        cluster.wait("both run", lambda: [jobs.state(one) for one in (1, 2)] == ["RUNNING"] * 2, WAIT_S)
        cluster.clock.sleep(SEEN_S)
        run("squeue -o '%.5i %.10j %.9T %.14b'")
        tape.type("rad status", prompt=ROOT)
        _played(
            tape, ["rad", "status", "--config", str(cluster.place.etc / "rad.n0.toml")], env, cluster.clock
        )
        cluster.wait("both end", lambda: all(jobs.state(one) in ENDED for one in (1, 2)), WAIT_S)
        tape.show("\x1b[2m# some seconds later\x1b[0m\r\n", THINK_S)
        run("cat resnet18-1.out")
        run("squeue -t all -o '%.5i %.10j %.9T %.14b'")
        picture = _screen_of_top(cluster, jobs)
    finally:
        cluster.down()
        for user in made:
            start(["userdel", user], timeout_s=WAIT_S)
    (checkout / TOP).write_text(picture, encoding="utf-8")
    out = checkout / CAST
    out.write_text(tape.cast("A first shared job"), encoding="utf-8")
    return out


def _has(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _screen_of_top(cluster: Cluster, jobs: Jobs) -> str:
    """Return a picture of `rad top` while jobs share the node's GPUs."""
    mine = []
    for (directive, memory, smact), user in zip(ON_SCREEN, cycle(USERS), strict=False):
        train = f"python3 fake_train.py --memory {memory} --seconds {WAIT_S} --smact {smact}"
        words = ("--gpus=1", "--output=/dev/null", f"--comment=rad:{directive}", "--wrap", train)
        mine.append(jobs.submit(*words, user=user).job_id)
    cluster.wait("all run", lambda: all(jobs.state(one or 0) == "RUNNING" for one in mine), WAIT_S)
    cluster.clock.sleep(STEADY_S)
    config = cluster.place.etc / "rad.n0.toml"
    place = f"n0=127.0.0.1:{load_config(config).telemetry.serve}"
    rad = f"{cluster.place.venv}/bin/rad"
    return as_svg(
        cluster.slurm(rad, "top", "--once", "--config", str(config), "--node", place),
        "rad top: four simulated GPUs, memory used and booked, SM activity, and the jobs on each",
    )


def _played(tape: Recording, argv: list[str], env: Mapping[str, str], clock: Clock) -> None:
    """Run a program on a separate terminal, and add its output to the tape as it appears."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(argv[0], argv, dict(env))
    os.set_blocking(terminal, False)
    before = clock.monotonic_s()
    while True:
        select.select([terminal], [], [], 0.1)
        try:
            text = os.read(terminal, 65536).decode(errors="replace")
        except BlockingIOError:
            continue
        except OSError:  # the program has closed its terminal
            break
        if not text:
            break
        now = clock.monotonic_s()
        tape.show(text, now - before)
        before = now
    os.waitpid(pid, 0)
    os.close(terminal)
