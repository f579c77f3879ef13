"""Measure the memory of programs on GPUs: python bench/programs/measure_programs.py LIST --out FOLDER.

LIST is programs.txt (public training programs, with clones in --sources) or settings.txt (networks under settings of
PyTorch), both next to this. Each program runs unchanged until it has made ten optimizer steps or ends, several next to
each other on each GPU; those marked `alone` have it for themselves, and wait for it when their packages are imported
already. One line of JSON a program goes to FOLDER/LIST.jsonl as soon as it is done:

- "process_peak_bytes": the most that NVML showed of the process that trains, "other_processes_bytes" of its others;
- "reserved_peak_bytes", "allocated_peak_bytes": what PyTorch's allocator says, however short a peak was;
- "held_by_step_bytes" and "outside_by_step_bytes": after each of the first steps, what the allocator held and what
  NVML saw next to it. The exact peak of the process is the reserved peak and what is outside.

With --done, lines that an earlier file has are left out, so that a run that was cut off goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
import lines
from gpu_campaign.peaks import GATE, WAITING
from measured_scripts import Gpus, RunningScript

SAMPLED_EVERY_S = 0.003
PREPARED = 4
"""Programs on each GPU that import what they need while others train."""
STEPS = 10
AFTER_THIRD_STEP_S = 15.0
MOST_HISTORY_BYTES = 15 << 20
"""Of a file that comes back."""


class Program(RunningScript):
    """One program that runs."""

    def __init__(self, line: lines.Line, options: argparse.Namespace, gpus: tuple[int, ...]) -> None:
        self.entry, self._options = line, options
        self.admitted_s: float | None = None
        super().__init__(line.text, options.python, gpus)

    def _lay(self) -> Path:
        return lines.lay(self.entry, self._options.sources, self._options.data, self.folder)

    def _further(self, environment: dict[str, str]) -> dict[str, str]:
        return {GATE: str(self.folder / "gate"), **lines.variables(self.entry, self._work, environment)}

    def _words(self, python: Path) -> list[str]:
        return self.entry.command(python, self._options.sources)

    @property
    def ready(self) -> bool:
        """Whether it waits for the GPU, or has ended without."""
        return (self.folder / WAITING).exists() or self._process.poll() is not None

    def admit(self) -> None:
        """Let it use the GPU."""
        self.admitted_s = time.time()
        (self.folder / "gate").touch()

    def over(self, now_s: float) -> str:
        """Tell how it ended; empty while it runs."""
        status = self._process.poll()
        if status is not None:
            return "itself" if status == 0 else f"status {status}"
        notes = self._notes()
        third_s = notes.get("third_step_s")
        if third_s is not None and now_s - third_s > AFTER_THIRD_STEP_S:
            return "stopped"
        if notes.get("steps", 0) >= STEPS and third_s is not None and now_s - third_s > 1.0:
            return "stopped"
        since = self.admitted_s or self._began_s
        longest: float = self._options.longest
        return f"no three steps in {longest:.0f} s" if now_s - since > longest else ""

    def row(self, ended: str) -> dict[str, Any]:
        """End it and return what was seen."""
        since = self.admitted_s or self._began_s
        found = super().row(ended) | {"alone": self.entry.alone, "on_gpu_s": round(time.time() - since, 1)}
        if not found.get("steps"):
            log = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
            found["log"] = log[-2000:]
        return found


class Sampler(threading.Thread):
    """Reads NVML all the time and keeps the highest of each process."""

    def __init__(self, gpus: Gpus) -> None:
        super().__init__(daemon=True)
        self._gpus, self._lock = gpus, threading.Lock()
        self._highest: dict[int, int] = {}
        self.samples = 0

    def run(self) -> None:
        """Sample until the program ends."""
        while True:
            with suppress(Exception):
                used = self._gpus.used()
                with self._lock:
                    self.samples += 1
                    for process, n_bytes in used.items():
                        self._highest[process] = max(self._highest.get(process, 0), n_bytes)
            time.sleep(SAMPLED_EVERY_S)

    def taken(self) -> dict[int, int]:
        """Return the highest since the last call."""
        with self._lock:
            highest, self._highest = self._highest, {}
        return highest


class GpuQueue:
    """One GPU: what it runs and what waits for it."""

    def __init__(self, index: int, at_once: int) -> None:
        self.index, self._at_once = index, at_once
        self.prepared: list[Program] = []
        self.running: list[Program] = []

    def admit(self) -> None:
        """Let prepared programs use the GPU, in their order, as far as there is place."""
        for program in tuple(self.prepared):
            if not program.ready:
                continue
            free = not self.running if program.entry.alone else len(self.running) < self._at_once
            if not free or any(each.entry.alone for each in self.running):
                return
            self.prepared.remove(program)
            self.running.append(program)
            program.admit()


def main() -> None:
    """Measure, within the time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("list", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sources", type=Path, default=Path("sources"), help="folder of the clones")
    parser.add_argument("--data", type=Path, help="folder of the data that the programs read")
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--seconds", type=float, default=240.0, help="all of it may take")
    parser.add_argument(
        "--longest", type=float, default=90.0, help="seconds for a program's first three steps"
    )
    parser.add_argument("--at-once", type=int, default=4, help="programs on each GPU")
    parser.add_argument("--done", type=Path, nargs="*", default=[], help="rows of earlier runs")
    parser.add_argument("words", nargs="*", help="only lines that hold one of these")
    options = parser.parse_intermixed_args()
    ends_s = time.time() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    options.python = options.python.absolute()
    options.sources = options.sources.absolute()
    options.data = options.data and options.data.absolute()
    to = options.out / f"{options.list.stem}.jsonl"
    done = {
        row["script"]
        for path in (*options.done, to)
        if path.exists()
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())
        if row.get("steps", 0) >= 2
    }
    waiting = deque(
        line
        for line in lines.read(options.list)
        if line.text not in done and (not options.words or any(word in line.text for word in options.words))
    )
    total, made = len(waiting), 0
    nvml = Gpus()
    sampler = Sampler(nvml)
    sampler.start()
    gpus = [GpuQueue(n, options.at_once) for n in range(max(len(nvml.handles), 1))]
    histories = options.out / f"{options.list.stem}.histories.jsonl.xz"

    def close(program: Program, ended: str) -> None:
        row = program.row(ended) | {"driver": nvml.driver}
        with to.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
        packed = program.history()
        if (histories.stat().st_size if histories.exists() else 0) + len(packed) < MOST_HISTORY_BYTES:
            with histories.open("ab") as file:
                file.write(packed)
        seen, reserved = row.get("process_peak_bytes") or 0, row.get("reserved_peak_bytes") or 0
        what = f"{seen >> 20} MiB, reserved {reserved >> 20} MiB, {row.get('steps', 0)} steps"
        print(f"{row['script'][:100]}: {ended}, {what}, {row['on_gpu_s']} s", flush=True)
        program.close()

    while (waiting or any(gpu.prepared or gpu.running for gpu in gpus)) and time.time() < ends_s:
        for gpu in sorted(gpus, key=lambda gpu: len(gpu.prepared) + len(gpu.running)):
            if waiting and len(gpu.prepared) < PREPARED:
                gpu.prepared.append(Program(waiting.popleft(), options, (gpu.index,)))
        used, now_s = sampler.taken(), time.time()
        for gpu in gpus:
            for program in tuple(gpu.running):
                program.look(used)
                if ended := program.over(now_s):
                    gpu.running.remove(program)
                    close(program, ended)
                    made += 1
            gpu.admit()
            for program in tuple(gpu.prepared):
                if not program.ready and now_s - program._began_s > options.longest:
                    gpu.prepared.remove(program)
                    close(program, f"did not use the GPU in {options.longest:.0f} s")
        time.sleep(0.02)
    for gpu in gpus:
        for program in (*gpu.running, *gpu.prepared):
            close(program, "out of time")
    print(f"{made} of {total} done, {sampler.samples} readings, {len(waiting)} not begun")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        tempfile.tempdir = temporary
        main()
