"""Measure the duration of an estimate: by number of layers, with a warm profile, and as a whole process.

    python bench/cost/estimate_cost.py

Processor time, best of several runs, so that a busy machine changes little; of whole processes the median.
"""

from __future__ import annotations

import os
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
TURNS = 30


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


JOB = "#!/bin/sh\n#SBATCH --gpus=1\n#RAD model=m.txt batch_size=8\n"
TOML = 'default_partition = "gpu"\n[partition.gpu]\ncollocate = true\ngpu_memory_mib = 40000\n'
ESTIMATE = ("-c", "from slurm_plugin.rad_estimate import main; main()")
REQUEST = '{"command":"sbatch","script":"job.sh","gpus":"1"}'
WAYS: dict[str, tuple[str, ...]] = {
    "a text": (*ESTIMATE, "m.txt", "--batch-size", "8"),
    "sbatch, in cli_filter": ("-m", "slurm_plugin.login.cli_filter", "rad.toml", REQUEST),
    "a job, with rad.toml": (*ESTIMATE, "job.sh"),
}


def whole_processes(folder: Path) -> dict[str, tuple[float, float]]:
    """Run each way and an empty program in turns; return medians of ms and of their ratio."""
    (folder / "m.txt").write_text(summary(264))
    (folder / "job.sh").write_text(JOB)
    (folder / "rad.toml").write_text(TOML)
    os.chdir(folder)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    for _ in range(TURNS):
        empty = cpu_ms([sys.executable, "-I", "-c", "pass"])
        for name, words in WAYS.items():
            os.environ["RAD_CONFIG"] = str(folder / "rad.toml") if "a job" in name else "/etc/rad/rad.toml"
            # -I: the installed package, as users have it.
            own = cpu_ms([sys.executable, "-I", *words])
            taken[name].append((own, own / empty))
    del os.environ["RAD_CONFIG"]
    return {
        name: (statistics.median(ms for ms, _ in pairs), statistics.median(times for _, times in pairs))
        for name, pairs in taken.items()
    }


def peak_mib() -> int:
    """Return the peak RSS of a rad-estimate of a text, which it reports itself.

    The system's own count for a child begins with this process's memory.
    """
    reporting = (
        f"import atexit; atexit.register(lambda: print(open('/proc/self/status').read())); {ESTIMATE[1]}"
    )
    words = WAYS["a text"][2:]
    status = subprocess.run(
        [sys.executable, "-I", "-c", reporting, *words], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) // 1024


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
    with tempfile.TemporaryDirectory() as folder:
        found, rss = whole_processes(Path(folder)), peak_mib()
    for name, (taken_ms, times) in found.items():
        print(f"{name}: {taken_ms:.0f} ms processor time, {times:.1f} times python -c pass")
    print(f"a text: peak RSS {rss} MiB")


if __name__ == "__main__":
    main()
