"""How long a Prolog takes among many busy processes, with and without coming first on the processor.

python3 bench/hooks_under_load.py [--busy 50] [--count 3]      (as root, after `make setup`)

Everything is pinned to one core: 50 busy processes there are a load of 100 on two cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from flow.test_node_hooks import Hooks  # noqa: E402

NICENESS = (0, -10, -20)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--busy", type=int, default=50)
    parser.add_argument("--count", type=int, default=3)
    options = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print("| busy processes on the core | niceness of the hook | wall s, median | CPU s |")
    print("|---|---|---|---|")
    for busy in (0, options.busy):
        loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
        try:
            time.sleep(1.0)
            for niceness in NICENESS if busy else (0,):
                walls, cpu_s = measured(niceness, options.count)
                print(f"| {busy} | {niceness} | {statistics.median(walls):.2f} | {cpu_s:.2f} |", flush=True)
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()


def measured(niceness: int, count: int) -> tuple[list[float], float]:
    """Return the wall seconds of each of some Prologs, and the processor seconds of one."""
    with tempfile.TemporaryDirectory() as name:
        node = Hooks(Path(name))
        argv = ["/usr/bin/nice", "-n", str(niceness), sys.executable, "-I", "-m", "prolog"]
        before, walls = os.times(), []
        for number in range(count):
            start_s = time.monotonic()
            subprocess.run([*argv, "--config", f"{name}/rad.toml"], env=node.slurm(10 + number), check=True)
            walls.append(time.monotonic() - start_s)
        after = os.times()
    spent_s = after.children_user + after.children_system - before.children_user - before.children_system
    return walls, spent_s / count


if __name__ == "__main__":
    main()
