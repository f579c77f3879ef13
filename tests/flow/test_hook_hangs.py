"""Every path of a hook ends within its limit: each call to the outside hangs in turn, whichever it is."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from flow.test_node_hooks import Hooks

PROGRAM = Path(__file__).with_name("hanging_hook.py")
END_S = 2.2 + 0.8
"""The limits that hanging_hook.py sets, and what a second child gets in any case."""

SLACK_S = 10.0
"""For the interpreter's start on a busy machine, where eight such hooks start at once; tests/unit has the exact limits.
A hook without a limit would take forever."""

AT_ONCE = 8

CANNOT_RELEASE = (
    "core/ledger_store.py",
    "core/spare_files.py",
    "core/job_file.py",
    "core/child.py",
    " _read_copy",
    " _keep",
)
"""What keeps the reservations and starts the children, and the copy of rad.toml on this machine's own disk: where these
hang, this hook can release nothing, and rad-monitor's sweep does."""


class Node(Hooks):
    """A node whose hooks may hang, with two jobs: one ended well, one ran out of memory."""

    def hang(
        self, module: str, site: str | None, **env: str
    ) -> tuple[float, subprocess.CompletedProcess[str]]:
        """Run a hook in which one call hangs; return how long it took."""
        before = [sys.executable, "-I", str(PROGRAM), module, str(self.folder / "calls")]
        argv = [*before, *([] if site is None else [site]), "--", "--config", f"{self.folder}/rad.toml"]
        start_s = time.monotonic()
        done = subprocess.run(argv, env={**self.slurm(7), **env}, capture_output=True, text=True, timeout=60)
        return time.monotonic() - start_s, done


def scenario(folder: Path, hook: str) -> tuple[Node, dict[str, str]]:
    """Return a node on which a hook does much of what hooks do, and the hook's environment."""
    folder.mkdir()
    node = Node(folder)
    if hook == "prolog":
        return node, {}
    if hook == "prolog that puts back":
        node.run("prolog", 1, SLURM_JOB_COMMENT=node.whole)
        node.run("prolog", 2, SLURM_JOB_COMMENT=node.whole)
        return node, {}
    node.run("prolog")
    (folder / "slurm-7.out").write_text("CUDA out of memory. Tried to allocate 2.00 GiB")
    return node, {"SLURM_JOB_EXIT_CODE": "256"}


def calls_of(folder: Path, hook: str) -> list[str]:
    """Return the calls to the outside that a hook makes when nothing hangs."""
    node, env = scenario(folder, hook)
    _, done = node.hang(hook.partition(" ")[0], None, **env)
    assert done.returncode == 0, done.stderr
    return sorted(set((folder / "calls").read_text().splitlines()))


@pytest.mark.parametrize(
    "hooks", [("prolog", "prolog that puts back"), ("epilog",)], ids=lambda hooks: hooks[0]
)
def test_whatever_hangs_a_hook_ends_in_time_and_gives_back_what_the_job_holds(
    tmp_path: Path, hooks: tuple[str, ...]
) -> None:
    trials = {site: hook for hook in hooks for site in calls_of(tmp_path / hook, hook)}
    assert len(trials) > 80, "the calls of a hook are seen"

    def fault(number: int, site: str, hook: str) -> str:
        module = hook.partition(" ")[0]
        node, env = scenario(tmp_path / str(number), hook)
        duration_s, done = node.hang(module, site, **env)
        if done.returncode or duration_s > END_S + SLACK_S:
            return f"{site}: status {done.returncode} after {duration_s:.1f} s"
        if module == "prolog":
            node.run("epilog", SLURM_JOB_EXIT_CODE="0")
        if 7 in node.reserved and not any(file in site for file in CANNOT_RELEASE):
            return f"{site}: its reservation stays"
        return ""

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(fault, range(len(trials)), trials.keys(), trials.values())
        faults = [text for text in found if text]
    assert not faults, "\n".join(faults)
