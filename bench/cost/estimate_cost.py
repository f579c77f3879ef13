"""What an estimate costs: by number of layers, with a warm profile, and as a whole process.

    python bench/cost/estimate_cost.py

Processor time, best of several runs, so that a busy machine changes little; of whole processes the median.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from gpumemnet.estimators.registry import estimate
from gpumemnet.profile.build import build_profile
from gpumemnet.profile.record import ModelProfile
from gpumemnet.summaries.texts.formats.detect import parse_text
from gpumemnet.training import TrainingSetup

SETUP = TrainingSetup(batch_size=8)
TURNS = 25


def summary(layers: int) -> str:
    """Return a torchsummary table of this many rows: convolution, norm, activation, again and again."""
    rows = [("Conv2d", 36928), ("BatchNorm2d", 128), ("ReLU", 0)]
    lines = ["-" * 64, f"{'Layer (type)':>20}  {'Output Shape':>25} {'Param #':>15}", "=" * 64]
    total = 0
    for number in range(layers):
        name, params = rows[number % 3]
        total += params
        lines.append(f"{name}-{number + 1:<4}  [-1, 64, 32, 32]  {params:,}")
    return "\n".join([*lines, "=" * 64, f"Total params: {total:,}", f"Trainable params: {total:,}", ""])


def best(call: Callable[[], object], times: int) -> float:
    """Return the least processor time of several calls, in milliseconds."""
    taken = []
    for _ in range(times):
        begin = time.process_time()
        call()
        taken.append(time.process_time() - begin)
    return min(taken) * 1e3


def cpu_ms(command: list[str]) -> float:
    """Run a command and return its processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def whole_process(path: Path) -> tuple[float, float, int]:
    """Run rad-estimate and an empty program in turns; return medians of ms and of their ratio, and peak RSS in MiB."""
    # -I: the installed package, as users have it.
    command = [
        sys.executable,
        "-I",
        "-c",
        "from slurm_plugin.rad_estimate import main; main()",
        str(path),
        "--batch-size",
        "8",
    ]
    pairs = [(cpu_ms(command), cpu_ms([sys.executable, "-I", "-c", "pass"])) for _ in range(TURNS)]
    taken_ms = statistics.median(own for own, _ in pairs)
    times = statistics.median(own / empty for own, empty in pairs)
    # The system's own count for a child begins with this process's memory, so the child reports what it took itself.
    command[3] = (
        f"import atexit; atexit.register(lambda: print(open('/proc/self/status').read())); {command[3]}"
    )
    status = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    peak_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    return taken_ms, times, peak_kib // 1024


def main() -> None:
    """Print the table."""
    print("layers   text to profile, ms   peak of Python's memory, MiB")
    for layers in (10, 30, 100, 300, 1000, 3000, 10000):
        text = summary(layers)
        spent = best(
            lambda text=text: build_profile(parse_text(text, path="x"), SETUP, path="x"),
            15 if layers < 3000 else 3,
        )
        tracemalloc.start()
        build_profile(parse_text(text, path="x"), SETUP, path="x")
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        print(f"{layers:>6} {spent:>16.2f} {peak:>24.1f}")
    profile, _ = build_profile(parse_text(summary(1000), path="x"), SETUP, path="x")
    words = profile.to_text()
    taken = sorted(best(lambda: estimate(ModelProfile.from_text(words)), 1) for _ in range(3000))
    print(
        f"profile to estimate: p50 {taken[1500]:.3f} ms, p99 {taken[2970]:.3f} ms; profile of {len(words)} characters"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(summary(264))
        file.flush()
        taken_ms, times, rss = whole_process(Path(file.name))
    print(
        f"rad-estimate, 270 lines, whole process: {taken_ms:.0f} ms processor time, {times:.1f} times python -c pass, "
        f"{rss} MiB"
    )


if __name__ == "__main__":
    main()
