"""Every path of a hook ends within its limit: each call to the outside hangs in turn, whichever it is."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from flow.test_node_hooks import Hooks

from tests.timing import within

PROGRAM = Path(__file__).with_name("hanging_hook.py")
WORK_S = 0.7
END_S = WORK_S + within(2)
"""Time limits of a hook in which a call hangs. The second child must release the allocation within its part, also on a
busy machine on which a dozen of such hooks run at once."""

SLACK_S = within(6.0)
"""tests/unit has the exact limits; a hook without a limit would take forever."""

AT_ONCE = 12

CANNOT_RELEASE = (
    "ledger/store.py",
    "files/two_slots.py",
    "ledger/lock.py",
    "files/preallocated.py",
    "files/atomic.py",
    "ledger/job_file.py",
    "process/child.py",
    " _read_copy",
    " _keep",
    " import",
)
"""What keeps the allocations and starts the children, the copy of rad.toml on this machine's own disk, and our own
modules: where these hang, this hook can release nothing, and rad-monitor does when it reconciles."""


class HangingHooks:
    """Runs hooks in which a call hangs, each in a process of its own, many at once."""

    def __init__(self) -> None:
        self._program = subprocess.Popen(
            [sys.executable, "-I", str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._ids = itertools.count()
        self._waiting: dict[int, Future[tuple[int, float]]] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def run(self, node: Node, hook: str, env: dict[str, str], site: str | None = None) -> tuple[int, float]:
        """Run a hook; return its exit status and the seconds it took."""
        request = {
            "id": next(self._ids),
            "hook": hook,
            "rad_toml": f"{node.folder}/rad.toml",
            "env": {**node.slurm(7), **env},
            "site": site,
            "calls": str(node.folder / "calls"),
            "work_s": WORK_S,
            "end_s": END_S,
        }
        answer = self._waiting[request["id"]] = Future()
        assert self._program.stdin is not None
        with self._lock:
            self._program.stdin.write(json.dumps(request) + "\n")
            self._program.stdin.flush()
        return answer.result(timeout=within(90))

    def close(self) -> None:
        assert self._program.stdin is not None
        self._program.stdin.close()
        self._program.wait(within(30))

    def _listen(self) -> None:
        assert self._program.stdout is not None
        for line in self._program.stdout:
            row = json.loads(line)
            self._waiting.pop(row["id"]).set_result((row["status"], row["seconds"]))


@pytest.fixture(scope="module")
def hanging() -> Iterator[HangingHooks]:
    hooks = HangingHooks()
    yield hooks
    hooks.close()


class Node(Hooks):
    """A node whose hooks may hang, with two jobs: one ended well, one ran out of memory."""


def scenario(hanging: HangingHooks, folder: Path, hook: str) -> tuple[Node, dict[str, str]]:
    """Return a node on which a hook does much of what hooks do, and the hook's environment."""
    folder.mkdir()
    node = Node(folder)
    if hook == "prolog":
        return node, {}
    if hook == "prolog that puts back":
        for number in (1, 2):
            hanging.run(node, "prolog", {"SLURM_JOB_ID": str(number), "SLURM_JOB_COMMENT": node.whole})
        return node, {}
    hanging.run(node, "prolog", {})
    (folder / "calls").unlink()
    (folder / "slurm-7.out").write_text("CUDA out of memory. Tried to allocate 2.00 GiB")
    return node, {"SLURM_JOB_EXIT_CODE": "256"}


def calls_of(hanging: HangingHooks, folder: Path, hook: str) -> list[str]:
    """Return the calls to the outside that a hook makes when nothing hangs."""
    node, env = scenario(hanging, folder, hook)
    status, _ = hanging.run(node, hook.partition(" ")[0], env)
    assert status == 0
    return sorted(set((folder / "calls").read_text().splitlines()))


@pytest.mark.parametrize(
    "hooks", [("prolog", "prolog that puts back"), ("epilog",)], ids=lambda hooks: hooks[0]
)
def test_whatever_hangs_a_hook_ends_in_time_and_gives_back_what_the_job_holds(
    hanging: HangingHooks, tmp_path: Path, hooks: tuple[str, ...]
) -> None:
    trials = {site: hook for hook in hooks for site in calls_of(hanging, tmp_path / hook, hook)}
    assert len(trials) > 80, "the calls of a hook are seen"

    hung = []

    def fault(number: int, site: str, hook: str) -> str:
        module = hook.partition(" ")[0]
        node, env = scenario(hanging, tmp_path / str(number), hook)
        status, duration_s = hanging.run(node, module, env, site)
        hung.append(duration_s > WORK_S / 2)
        if status or duration_s > END_S + SLACK_S:
            return f"{site}: status {status} after {duration_s:.1f} s"
        if module == "prolog":
            hanging.run(node, "epilog", {"SLURM_JOB_EXIT_CODE": "0"})
        if 7 in node.reserved and not any(file in site for file in CANNOT_RELEASE):
            return f"{site}: its allocation stays"
        return ""

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(fault, range(len(trials)), trials.keys(), trials.values())
        faults = [text for text in found if text]
    assert not faults, "\n".join(faults)
    assert sum(hung) > len(hung) / 2, "the calls really hang"
