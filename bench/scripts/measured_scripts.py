"""Measure the memory of training scripts on a GPU: python bench/scripts/measured_scripts.py --out FOLDER.

Needs torch, torchvision, timm, transformers, accelerate, lightning, peft, nvidia-ml-py and, for one of them,
bitsandbytes. Each script runs as it stands, several at once on each GPU, until it ends or some seconds after
its third optimizer step. FOLDER/scripts.jsonl gets one line as soon as a script is done, in order of their ends:

- "process_peak_bytes": the most that NVML showed of its first rank's process, asked twenty times a second;
- "reserved_peak_bytes", "allocated_peak_bytes": what PyTorch's allocator says of the same process;
- how it ended, how many steps it made, and the packages it ran with.

Meanwhile the same scripts are traced on the CPU (rows of the kind "traced"). FOLDER/histories.jsonl.xz holds every
allocation of their first three steps, for those who look for the cause of an error.
"""

from __future__ import annotations

import argparse
import json
import lzma
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.pool import AsyncResult
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from gpu_campaign.peaks import FOLDER
from traced_scripts import traced
from training_scripts import SCRIPTS, WAYS, command, ranks

BENCH = Path(__file__).resolve().parents[1]
SAMPLED_EVERY_S = 0.05
AFTER_THIRD_STEP_S = 6.0
LONGEST_S = 150.0
"""What a script may take for its first three steps."""
TRACERS = 8
STARTED = "RAD_MEASURED_BY"
"""Variable of the environment of all that this program starts."""
_SITECUSTOMIZE = "from gpu_campaign import peaks\n\npeaks.install()\n"


class Gpus:
    """All GPUs of the machine; none where NVML is not there."""

    def __init__(self) -> None:
        self.handles: list[Any] = []
        self.driver = ""
        try:
            import pynvml

            pynvml.nvmlInit()
            self.driver = str(pynvml.nvmlSystemGetDriverVersion())
            self.handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
            self._ask = pynvml.nvmlDeviceGetComputeRunningProcesses
        except Exception as exc:  # noqa: BLE001 - without it there is still what PyTorch says
            print(f"no NVML: {type(exc).__name__}: {exc}", file=sys.stderr)

    def used(self) -> dict[int, int]:
        """Return the bytes that each process holds on the GPU where it holds most."""
        found: dict[int, int] = {}
        for handle in self.handles:
            for row in self._ask(handle):
                found[row.pid] = max(found.get(row.pid, 0), row.usedGpuMemory or 0)
        return found


def holds(process: int, name: str, value: str) -> bool:
    """Tell whether a process was started with a variable of that value."""
    try:
        return f"{name}={value}".encode() in Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def end(name: str, value: str) -> None:
    """End all processes that were started with a variable of that value, but not this one."""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid() and holds(int(entry), name, value):
            with suppress(OSError):
                os.kill(int(entry), signal.SIGKILL)


class RunningScript:
    """One script that runs."""

    def __init__(self, line: str, python: Path, gpus: Sequence[int]) -> None:
        self.line, self.gpus = line, gpus
        self._kept = tempfile.TemporaryDirectory()
        self.folder = Path(self._kept.name)
        self._work = self._lay()
        (self.folder / "gpumemnet").symlink_to(BENCH.parent / "gpumemnet")
        (self.folder / "gpu_campaign").symlink_to(BENCH / "gpu_campaign")
        (self.folder / "sitecustomize.py").write_text(_SITECUSTOMIZE, encoding="utf-8")
        before = os.environ.get("PYTHONPATH")
        environment = os.environ | {
            "PYTHONPATH": f"{self.folder}{os.pathsep}{before}" if before else str(self.folder),
            FOLDER: str(self.folder),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
            "HF_HUB_OFFLINE": "1",
            "WANDB_MODE": "disabled",
        }
        environment |= self._further(environment)
        self._began_s = time.time()
        self._peaks: dict[int, int] = {}
        self._mine: dict[int, bool] = {}
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                self._words(python),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self._work,
                start_new_session=True,
            )

    def _lay(self) -> Path:
        """Make the folder that the script runs in."""
        (self.folder / "run").mkdir()
        return self.folder / "run"

    def _further(self, environment: dict[str, str]) -> dict[str, str]:
        """Return further variables of its environment."""
        return {}

    def _words(self, python: Path) -> list[str]:
        """Return the words that start it."""
        return command(self.line, python)

    def look(self, used: dict[int, int]) -> None:
        """Take the highest reading of each of its processes.

        Args:
            used: By all processes of the machine, in bytes.
        """
        for process in used.keys() - self._mine.keys():
            self._mine[process] = holds(process, FOLDER, str(self.folder))
        for process, n_bytes in used.items():
            if self._mine[process]:
                self._peaks[process] = max(self._peaks.get(process, 0), n_bytes)

    def over(self, now_s: float) -> str:
        """Tell how it ended; empty while it runs."""
        status = self._process.poll()
        if status is not None:
            return "itself" if status == 0 else f"status {status}"
        third_s = self._notes().get("third_step_s")
        if third_s is not None and now_s - third_s > AFTER_THIRD_STEP_S:
            return "stopped"
        return f"no three steps in {LONGEST_S:.0f} s" if now_s - self._began_s > LONGEST_S else ""

    def row(self, ended: str) -> dict[str, Any]:
        """End it and return what was seen."""
        end(FOLDER, str(self.folder))
        self._process.kill()
        self._process.wait()
        notes = self._notes()
        mine = self._peaks.pop(notes.get("process", 0), None)
        row = {
            "kind": "measured",
            "script": self.line,
            "ended": ended,
            "seconds": round(time.time() - self._began_s, 1),
            "process_peak_bytes": mine,
            "other_processes_bytes": sorted(self._peaks.values()),
        }
        if ended not in ("itself", "stopped"):
            row["log"] = (self.folder / "log").read_text(encoding="utf-8", errors="replace")[-1500:]
        return row | notes

    def history(self) -> bytes:
        """Return the packed history of its first rank, as one line; empty if there is none."""
        try:
            events = json.loads(lzma.decompress((self.folder / "history.0.xz").read_bytes()))
        except OSError:
            return b""
        return lzma.compress(
            (json.dumps({"script": self.line} | events, separators=(",", ":")) + "\n").encode()
        )

    def close(self) -> None:
        """Leave nothing behind."""
        with suppress(OSError):  # a process that dies may still write
            self._kept.cleanup()

    def _notes(self) -> dict[str, Any]:
        try:
            notes: dict[str, Any] = json.loads((self.folder / "notes.0.json").read_text(encoding="utf-8"))
        except OSError:
            return {}
        return notes


def free(running: list[RunningScript], n_gpus: int, at_once: int, wanted: int) -> Sequence[int]:
    """Return the GPUs for a script: those with the fewest; empty while none is free.

    Args:
        running: What runs.
        n_gpus: Of the machine.
        at_once: Scripts that one GPU may have.
        wanted: GPUs for the script.
    """
    loads = [sum(gpu in trial.gpus for trial in running) for gpu in range(n_gpus)]
    best = sorted(range(n_gpus), key=lambda gpu: loads[gpu])[:wanted]
    return sorted(best) if all(loads[gpu] < at_once for gpu in best) else ()


def main() -> None:
    """Measure and trace, within the time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--python", default=sys.executable, help="of an environment with all packages")
    parser.add_argument("--seconds", type=float, default=240.0, help="all of it may take")
    parser.add_argument("--at-once", type=int, default=5, help="scripts on each GPU")
    parser.add_argument("scripts", nargs="*", help="only those whose line holds one of these words")
    options = parser.parse_args()
    ends_s = time.time() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    python, gpus = Path(options.python).absolute(), Gpus()
    n_gpus = max(len(gpus.handles), 1)
    # What takes longest comes first: the ways to train, of which two wait for a compiler.
    chosen = [
        line
        for line in (*WAYS, *SCRIPTS)
        if not options.scripts or any(word in line for word in options.scripts)
    ]
    waiting = [line for line in chosen if ranks(line) <= n_gpus]
    running: list[RunningScript] = []
    os.environ[STARTED] = str(os.getpid())
    tracers = multiprocessing.get_context("fork").Pool(TRACERS)
    tracing = [tracers.apply_async(traced, (each, python, LONGEST_S)) for each in chosen]

    def write(row: dict[str, Any]) -> None:
        with (options.out / "scripts.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
        what = row.get("process_peak_bytes") or row.get("reserved_peak_bytes") or row.get("why", "done")
        print(f"{row['kind']} {row['script']}: {row.get('ended', '')} {what} {row['seconds']} s", flush=True)

    while (waiting or running) and time.time() < ends_s:
        for line in tuple(waiting):
            place = free(running, n_gpus, options.at_once, ranks(line))
            if place:
                waiting.remove(line)
                running.append(RunningScript(line, python, place))
        used = gpus.used()
        for trial in tuple(running):
            trial.look(used)
            ended = trial.over(time.time())
            if ended:
                running.remove(trial)
                write(trial.row(ended) | {"driver": gpus.driver})
                with (options.out / "histories.jsonl.xz").open("ab") as file:
                    file.write(trial.history())
                trial.close()
        write_done(tracing, write)
        time.sleep(SAMPLED_EVERY_S)
    for trial in running:
        write(trial.row("out of time") | {"driver": gpus.driver})
        trial.close()
    while tracing and time.time() < ends_s:
        write_done(tracing, write)
        time.sleep(SAMPLED_EVERY_S)
    tracers.terminate()
    end(STARTED, str(os.getpid()))  # what they were tracing


def write_done(tracing: list[AsyncResult[dict[str, Any]]], write: Callable[[dict[str, Any]], None]) -> None:
    """Write the rows of traces that are done.

    Args:
        tracing: All of them; those that are done leave the list.
        write: Takes a row.
    """
    for result in [each for each in tracing if each.ready()]:
        tracing.remove(result)
        write(result.get())


if __name__ == "__main__":
    main()
