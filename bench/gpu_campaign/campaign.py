"""Measure trainings one at a time (activity) and together (interference), on every GPU at once.

Each GPU has a conductor process of its own, and each conductor a few worker processes that hold the trainings. Rows
go to OUT/activity.jsonl and OUT/interference.jsonl as they come; started again with the same state folder, it goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator
from importlib import metadata
from itertools import pairwise
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from typing import Any

os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # lets PyTorch look for a GPU without touching CUDA

Record = dict[str, Any]
WINDOW_S, LONGEST_WINDOW_S = 1.05, 2.6
CO_SETTLE_S, CO_WINDOW_S, CO_LONGEST_S = 0.25, 1.05, 3.0
LEAST_STEPS = 4
PREPARERS = 5
SLOW_STEP_S = 2.5
WORKER_ROWS = 25
"""Rows after which an activity worker is replaced, so that what libraries keep does not add up."""


class Store:
    """Appends rows to a file under OUT and to its copy in the state folder."""

    def __init__(self, out: Path, state: Path, name: str) -> None:
        self.files = [open(each / name, "a", encoding="utf-8", buffering=1) for each in {out, state}]  # noqa: SIM115

    def __call__(self, record: Record) -> None:
        """Append a row."""
        line = json.dumps(record, separators=(",", ":")) + "\n"
        for file in self.files:
            file.write(line)


def read_rows(*paths: Path) -> Iterator[Record]:
    """Yield the rows of the files that exist; a last line cut off by a kill is left out."""
    for path in paths:
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    yield json.loads(line)
                except ValueError:
                    continue


def median(values: list[float]) -> float | None:
    """Return the median, or None of nothing."""
    if not values:
        return None
    values = sorted(values)
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def in_window(run: Record, begin_s: float, end_s: float) -> Record:
    """Return what a worker's run shows of the steps that ended between two moments."""
    ends = [t for t in run["ends"] if begin_s <= t <= end_s]
    if len(ends) < 2:
        # Steps about as long as the window: all of the run is looked at.
        ends = run["ends"]
    gaps = [b - a for a, b in pairwise(ends)]
    inside = [k for k, t in enumerate(run["ends"]) if begin_s <= t <= end_s]
    issue = [run["issued"][k] - run["begins"][k] for k in inside]
    service = [run["ends"][k] - run["begins"][k] for k in inside]
    ordered = sorted(gaps)
    return {
        "steps": len(ends),
        "step_mean_s": (ends[-1] - ends[0]) / len(gaps) if gaps else None,
        "step_median_s": median(gaps),
        "step_p95_s": ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))] if ordered else None,
        "issue_median_s": median(issue),
        "service_median_s": median(service),
    }


def rounded(record: Record) -> Record:
    """Return the record with short floats."""
    return {k: round(v, 6) if isinstance(v, float) else v for k, v in record.items()}


class Conductor:
    """Everything on one GPU."""

    def __init__(
        self, gpu: int, gpus: int, args: argparse.Namespace, stop_at_s: float, counters: Any
    ) -> None:
        self.gpu, self.gpus, self.args, self.stop_at_s = gpu, gpus, args, stop_at_s
        self.counters = counters
        self.device = "cpu" if args.dry_run else "cuda:0"
        self.environment = {} if args.dry_run else {"CUDA_VISIBLE_DEVICES": self.counters.uuid}
        self.steps = RawArray("L", 256)
        self.slots = 0
        self.out, self.state = Path(args.out), Path(args.state)
        self.activity = Store(self.out, self.state, f"activity.{gpu}.jsonl")
        self.interference = Store(self.out, self.state, f"interference.{gpu}.jsonl")

    def log(self, text: str) -> None:
        """Say something in the log."""
        print(f"{time.strftime('%H:%M:%S')} GPU {self.gpu}: {text}", file=sys.stderr, flush=True)

    def left_s(self) -> float:
        """Return the seconds that are left."""
        return self.stop_at_s - time.monotonic()

    def worker(self, name: str, extra: dict[str, str] | None = None) -> Any:
        """Start a worker."""
        from gpu_campaign.worker import Worker

        self.slots = (self.slots + 1) % 256
        return Worker(name, self.environment | (extra or {}), self.device, self.steps, self.slots)

    def run_activity(self, rows: list[Record], quota: int) -> None:
        """Measure rows, one at a time on the GPU, until they, the quota or the time are used up."""
        self.crew: list[Any] = []
        self.job: dict[int, Record] = {}
        self.ready: list[Any] = []
        waiting = deque(rows)
        done = 0
        try:
            while self.left_s() > 6 and done < quota and (waiting or self.job):
                self._staff(waiting, min(PREPARERS, quota - done))
                worker = self._next_ready()
                if worker is None:
                    continue
                row = self.job.pop(worker.pid)
                done += self._measure(worker, row)
        finally:
            for worker in self.crew:
                worker.kill()
        self.log(f"activity: {done} rows, {len(waiting)} left")

    def _staff(self, waiting: deque[Record], wanted: int) -> None:
        """Keep enough workers preparing."""
        self.crew = [w for w in self.crew if w.alive]
        for worker in list(self.crew):
            if worker.rows >= WORKER_ROWS and worker.pid not in self.job:
                worker.kill()
                self.crew.remove(worker)
        while len(self.crew) < wanted and waiting:
            worker = self.worker(f"activity-{self.slots}")
            worker.send("hello")
            worker.greeted, worker.since = False, time.monotonic()
            self.crew.append(worker)
        for worker in self.crew:
            if worker.pid not in self.job and waiting:
                row = waiting.popleft()
                self.job[worker.pid] = row
                worker.prepared, worker.since = False, time.monotonic()
                try:
                    worker.send("prepare", config=row["config"])
                except Exception as exc:  # noqa: BLE001
                    self._fail(worker, row, str(exc))

    def _next_ready(self) -> Any:
        """Return a worker that has prepared its row; None if none has within a moment."""
        from multiprocessing.connection import wait

        from gpu_campaign.worker import WorkerGone

        for worker in self.crew:
            if worker.alive and worker.pid in self.job and worker.prepared:
                return worker
        by_pipe = {w.pipe: w for w in self.crew if w.alive and w.pid in self.job}
        if not by_pipe:
            time.sleep(0.01)
            return None
        for pipe in wait(list(by_pipe), 0.05):
            worker = by_pipe[pipe]
            row = self.job[worker.pid]
            try:
                answer = worker.answer("prepare" if worker.greeted else "hello", 1.0)
            except WorkerGone as exc:
                self._fail(worker, row, str(exc))
                continue
            if not answer["ok"]:
                self._fail(worker, row, answer["error"], answer["outcome"])
                continue
            if answer["say"] == "hello":
                worker.greeted = True
            else:
                worker.prepared = True
                row["prepare_s"] = answer["prepare_s"]
        now = time.monotonic()
        for worker in list(by_pipe.values()):
            if worker.alive and not worker.prepared and now - worker.since > 90:
                self._fail(worker, self.job[worker.pid], "not prepared in 90 s")
        return None

    def _fail(self, worker: Any, row: Record, error: str, outcome: str = "error") -> None:
        worker.kill()
        self.job.pop(worker.pid, None)
        self.activity(row | {"outcome": outcome, "error": error, "gpu": self.gpu})

    def _measure(self, worker: Any, row: Record) -> int:
        """Measure one prepared row; return 1 if there is a result."""
        from gpu_campaign.worker import WorkerGone

        dry = self.args.dry_run
        began = time.monotonic()
        try:
            worker.send("load", least_steps=3, least_s=0.0 if dry else 0.25, most_s=1.5)
            loaded = worker.answer("load", min(40.0, self.left_s()))
            if not loaded["ok"]:
                raise WorkerGone(loaded["error"])
            if loaded["warm_step_s"] > SLOW_STEP_S:
                raise WorkerGone(f"a step takes {loaded['warm_step_s']:.1f} s")
            worker.send("run")
            settle = time.monotonic() + (0.0 if dry else 0.12)
            while time.monotonic() < settle or (
                self.steps[worker.slot] < 1 and time.monotonic() < settle + 5
            ):
                time.sleep(0.002)
            self.counters.begin()
            t1 = time.monotonic()
            first = self.steps[worker.slot]
            while True:
                time.sleep(0.004)
                spent = time.monotonic() - t1
                if (
                    spent >= WINDOW_S and self.steps[worker.slot] - first >= LEAST_STEPS
                ) or spent >= LONGEST_WINDOW_S:
                    break
                if worker.pipe.poll(0):
                    break
            counted = self.counters.end()
            t2 = time.monotonic()
            process_bytes = self.counters.processes().get(worker.pid)
            worker.send("stop")
            ran = worker.answer("run", 15.0)
            if not ran["ok"]:
                raise WorkerGone(ran["error"])
            steps = in_window(ran, t1, t2)
            result = {
                "outcome": "ok",
                "process_bytes": process_bytes,
                "runs_before": worker.rows,
                **{k: loaded[k] for k in ("warm_step_s", "load_s", "params")},
                **{k: ran[k] for k in ("allocated_peak_bytes", "reserved_peak_bytes") if k in ran},
                **steps,
                **counted,
            }
            mean = steps["step_mean_s"]
            joules, window = counted.get("energy_j"), counted["window_s"]
            result["energy_per_step_j"] = joules / window * mean if joules and mean else None
            self.activity(
                row | rounded(result) | {"gpu": self.gpu, "row_s": round(time.monotonic() - began, 3)}
            )
            worker.rows += 1
            worker.send("drop")
            if not worker.answer("drop", 10.0).get("clean"):
                worker.kill()
            return 1
        except WorkerGone as exc:
            worker.kill()
            text = str(exc)
            outcome = "oom" if "out of memory" in text.lower() else "error"
            self.activity(row | {"outcome": outcome, "error": text, "gpu": self.gpu})
            return 0
        except Exception as exc:  # noqa: BLE001 - one row never ends the campaign
            self.log(traceback.format_exc())
            worker.kill()
            self.activity(row | {"outcome": "error", "error": repr(exc)[:300], "gpu": self.gpu})
            return 0

    def run_interference(
        self, residents: list[Record], schedule: list[Record], mode: str, until_s: float
    ) -> int:
        """Load the residents, then run groups of them together; return how many rows there are."""
        pipe = f"/tmp/rad-mps-{os.getpid()}"
        daemon = None
        extra: dict[str, str] = {}
        self.house: dict[str, Any] = {}
        count = 0
        try:
            if mode == "mps" and not self.args.dry_run:
                daemon = self._start_mps(pipe)
                extra = {"CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_LOG_DIRECTORY": f"{pipe}-log"}
            self._move_in(residents, extra, until_s)
            if daemon is not None:
                self.log(f"MPS: {len(self._ask_mps(pipe, 'get_server_list').split())} servers")
            self.alone: dict[str, float] = {}
            known = list(self.house)
            first = [{"members": [[name, None]]} for name in known]
            groups = deque(first + schedule)
            seen = 0
            while groups and time.monotonic() < until_s - 5 and self.left_s() > 6:
                group = groups.popleft()
                members = [(name, duty) for name, duty in group["members"]]
                if not all(name in self.house and self.house[name].alive for name, _ in members):
                    continue
                try:
                    count += self._together(members, mode)
                except Exception:  # noqa: BLE001 - one row never ends the campaign
                    self.log(traceback.format_exc())
                seen += 1
                if seen % 60 == 0 and known:
                    # The GPU alone again, to see whether anything drifts.
                    groups.appendleft({"members": [[known[(seen // 60) % len(known)], None]]})
        finally:
            for worker in self.house.values():
                worker.kill()
            if daemon is not None:
                self._stop_mps(pipe, daemon)
        self.log(f"interference {mode}: {count} rows, {len(groups)} groups left")
        return count

    def _start_mps(self, pipe: str) -> Any:
        for folder in (pipe, f"{pipe}-log"):
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder, mode=0o700)
        environment = dict(os.environ) | {
            "CUDA_VISIBLE_DEVICES": self.counters.uuid,
            "CUDA_MPS_PIPE_DIRECTORY": pipe,
            "CUDA_MPS_LOG_DIRECTORY": f"{pipe}-log",
        }
        log = open(f"{pipe}-log/daemon.out", "w")  # noqa: SIM115
        daemon = subprocess.Popen(
            ["nvidia-cuda-mps-control", "-f"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
        (self.state / f"mps.{self.gpu}.pid").write_text(str(daemon.pid))
        end = time.monotonic() + 15
        while time.monotonic() < end:
            try:
                self._ask_mps(pipe, "get_server_list")
                return daemon
            except (subprocess.SubprocessError, OSError):
                time.sleep(0.1)
        daemon.kill()
        raise RuntimeError("the MPS daemon does not answer")

    def _ask_mps(self, pipe: str, question: str) -> str:
        environment = dict(os.environ) | {
            "CUDA_MPS_PIPE_DIRECTORY": pipe,
            "CUDA_MPS_LOG_DIRECTORY": f"{pipe}-log",
        }
        answer = subprocess.run(
            ["nvidia-cuda-mps-control"],
            input=question + "\n",
            capture_output=True,
            text=True,
            timeout=5,
            env=environment,
            check=True,
        )
        return answer.stdout

    def _stop_mps(self, pipe: str, daemon: Any) -> None:
        try:
            self._ask_mps(pipe, "quit -t 3")
            daemon.wait(8)
        except (subprocess.SubprocessError, OSError):
            pass
        finally:
            if daemon.poll() is None:
                daemon.kill()
            shutil.rmtree(pipe, ignore_errors=True)

    def _move_in(self, residents: list[Record], extra: dict[str, str], until_s: float) -> None:
        """Start one worker for each resident and load them all; those that fail are left out."""
        from gpu_campaign.worker import WorkerGone

        begin = time.monotonic()
        self.memory_of: dict[str, Record] = {}
        self.configs = {row["id"]: row for row in residents}
        for row in residents:
            worker = self.worker(row["id"], extra)
            self.house[row["id"]] = worker
            worker.send("hello")
            worker.send("prepare", config=row["config"])
            worker.send("load", least_steps=3, least_s=0.0, most_s=1.0)
        end = min(begin + 120, until_s - 20)
        for name, worker in list(self.house.items()):
            try:
                for do in ("hello", "prepare", "load"):
                    answer = worker.answer(do, end - time.monotonic())
                    if not answer["ok"]:
                        raise WorkerGone(f"{name}: {answer['error']}")
                self.memory_of[name] = {
                    "process_bytes": self.counters.processes().get(worker.pid),
                    "reserved_peak_bytes": answer.get("reserved_peak_bytes"),
                }
            except WorkerGone as exc:
                self.log(f"not a resident: {exc}")
                worker.kill()
                del self.house[name]
        used = self.counters.used_bytes() / 2**30
        self.log(f"{len(self.house)} residents in {time.monotonic() - begin:.0f} s, {used:.0f} GiB used")

    def _together(self, members: list[tuple[str, float | None]], mode: str) -> int:
        """Run residents together for a moment and store one row; return 1 if there is one."""
        from gpu_campaign.worker import WorkerGone

        workers = [self.house[name] for name, _ in members]
        ran: dict[str, Record] = {}
        started = []
        try:
            for worker, (name, duty) in zip(workers, members, strict=True):
                period = None if duty is None else self.alone.get(name, 0.05) / duty
                self.steps[worker.slot] = 0
                worker.send("run", period_s=period)
                started.append(worker)
            begin = time.monotonic()
            settle = 0.05 if self.args.dry_run else CO_SETTLE_S
            while time.monotonic() < begin + 4:
                if time.monotonic() > begin + settle and all(self.steps[w.slot] >= 2 for w in workers):
                    break
                time.sleep(0.003)
            self.counters.begin()
            t1 = time.monotonic()
            firsts = [self.steps[w.slot] for w in workers]
            while True:
                time.sleep(0.004)
                spent = time.monotonic() - t1
                enough = all(
                    self.steps[w.slot] - f >= LEAST_STEPS for w, f in zip(workers, firsts, strict=True)
                )
                if (spent >= CO_WINDOW_S and enough) or spent >= CO_LONGEST_S:
                    break
            counted = self.counters.end()
            t2 = time.monotonic()
        finally:
            for worker in started:
                try:
                    worker.send("stop")
                except WorkerGone as exc:
                    self.log(str(exc))
            for worker in started:
                try:
                    ran[worker.name] = worker.answer("run", 20.0)
                except WorkerGone as exc:
                    self.log(str(exc))
        rows = []
        for worker, (name, duty) in zip(workers, members, strict=True):
            answer = ran.get(name)
            if answer is None or not answer["ok"]:
                why = "gone" if answer is None else answer["error"]
                self.interference(
                    {"mode": mode, "members": members, "outcome": "error", "error": f"{name}: {why}"}
                )
                worker.kill()
                self.house.pop(name, None)
                return 0
            seen = in_window(answer, t1, t2)
            if duty is not None:
                seen["period_s"] = self.alone.get(name, 0.05) / duty
            rows.append(rounded({"id": name, "duty": duty} | seen))
        if len(members) == 1 and members[0][1] is None and rows[0]["step_mean_s"]:
            self.alone.setdefault(members[0][0], rows[0]["step_mean_s"])
        self.interference(
            {"mode": mode, "members": rows, "outcome": "ok", "gpu": self.gpu, "at": round(time.time(), 1)}
            | rounded(counted)
            | ({"held": self.memory_of.get(members[0][0])} if len(members) == 1 else {})
        )
        return 1


def groups_of(names: list[str], small: list[str], mode: str, seed: int) -> list[Record]:
    """Return the groups to run together, in random order: pairs, triples, larger ones, paced ones."""
    r = random.Random(f"interference/{mode}/{seed}")
    duties = (0.25, 0.5, 0.75)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    r.shuffle(pairs)
    share = pairs[: 130 if mode == "mps" else 40]
    groups: list[list[list[Any]]] = [[[a, None], [b, None]] for a, b in share]
    many = 1 if mode == "mps" else 0
    for size, count in ((3, 45 if many else 10), (4, 12 * many), (6, 8 * many), (8, 6 * many)):
        for _ in range(count):
            if size <= len(names):
                groups.append([[name, None] for name in r.sample(names, size)])
    for size, count in (
        (1, 10 * many),
        (2, 45 if many else 8),
        (3, 30 * many),
        (5, 18 * many),
        (8, 16 * many),
    ):
        for _ in range(count):
            if size <= len(names):
                choices = (*duties, None) if size > 1 else duties
                groups.append([[name, r.choice(choices)] for name in r.sample(names, size)])
    if many and len(small) >= 4:
        for size in (2, 3, 4, len(small)):
            groups.append([[name, None] for name in r.sample(small, size)])
            groups.append([[name, 0.5] for name in r.sample(small, size)])
    r.shuffle(groups)
    return [{"members": members} for members in groups]


def conduct(gpu: int, gpus: int, args: argparse.Namespace, stop_at_s: float, counters: Any) -> None:
    """Do everything that is planned for one GPU."""
    from gpu_campaign.plan import dry_plan, make_plan

    plan = dry_plan() if args.dry_run else make_plan()
    conductor = Conductor(gpu, gpus, args, stop_at_s, counters)
    session = {"session": True, "gpu": gpu, "at": round(time.time(), 1), "versions": versions()}
    session |= (
        {"cores": os.cpu_count()}
        | conductor.counters.describe()
        | {"kernel": platform.release(), "python": platform.python_version()}
    )
    before = [Path(args.state)]
    found = list(read_rows(*(f for b in before for f in sorted(b.glob("activity*.jsonl")))))
    known = {row["id"] for row in found if "id" in row}
    mine = [row for i, row in enumerate(plan["activity"]) if i % gpus == gpu and row["id"] not in known]
    had = sum(1 for row in found if row.get("outcome") == "ok")
    quota = max(0, (args.rows - had + gpus - 1) // gpus)
    conductor.log(f"{len(mine)} activity rows left, quota {quota}, {conductor.left_s():.0f} s left")
    if quota:
        conductor.activity(session | {"seed": plan["seed"]})
        try:
            conductor.run_activity(mine, quota)
        except Exception:  # noqa: BLE001 - interference still has its turn
            conductor.log(traceback.format_exc())
    if args.no_interference or conductor.left_s() < (5 if args.dry_run else 90):
        return
    conductor.interference(session)
    done = list(read_rows(*(f for b in before for f in sorted(b.glob("interference*.jsonl")))))
    residents = plan["residents"] + plan["visitors"][gpu % 2 :: 2]
    small = [row["id"] for row in residents if row.get("small")]
    for mode, share in (("mps", 0.8), ("none", 1.0)):
        people = residents if mode == "mps" else [row for row in residents if row.get("plain")]
        schedule = groups_of([row["id"] for row in people], small if mode == "mps" else [], mode, seed=gpu)
        over = {
            json.dumps([[m["id"], m["duty"]] for m in row["members"]])
            for row in done
            if row.get("outcome") == "ok" and row.get("mode") == mode and row.get("gpu") == gpu
        }
        schedule = [g for g in schedule if json.dumps(g["members"]) not in over]
        until_s = time.monotonic() + conductor.left_s() * share
        try:
            conductor.run_interference(people, schedule, mode, until_s)
        except Exception:  # noqa: BLE001 - the other mode still has its turn
            conductor.log(traceback.format_exc())
    known |= {row["id"] for row in read_rows(Path(args.state) / f"activity.{gpu}.jsonl") if "id" in row}
    rest = [row for row in mine if row["id"] not in known]
    if rest and conductor.left_s() > 20:
        conductor.run_activity(rest, len(rest))


def versions() -> dict[str, str]:
    """Return the versions of what is measured with."""
    found = {}
    for name in ("torch", "torchvision", "timm", "transformers", "nvidia-ml-py"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def run(description: str, *, rows: int, interference: bool) -> int:
    """Fork one conductor for each GPU and wait for them.

    Args:
        description: For --help.
        rows: Activity rows before anything else.
        interference: Whether groups are run after them.
    """
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", required=True, help="folder of the rows")
    parser.add_argument("--state", help="where the rows are kept between calls; default: OUT")
    parser.add_argument("--seconds", type=float, default=540.0, help="everything has ended before")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, tiny models, no counters")
    args = parser.parse_args()
    args.state, args.rows, args.no_interference = args.state or args.out, rows, not interference
    stop_at_s = began + args.seconds - 20
    out, state = Path(args.out), Path(args.state)
    for folder in (out, state):
        folder.mkdir(parents=True, exist_ok=True)
    for old in state.glob("*.jsonl"):
        if not (out / old.name).exists():
            shutil.copy(old, out / old.name)

    from gpu_campaign.counters import FakeCounters, Meter
    from gpu_campaign.counters import gpus as count_gpus

    # The meters are forked first, before anything here has touched the driver.
    meters: list[Any] = (
        [FakeCounters(), FakeCounters()] if args.dry_run else [Meter(i) for i in range(count_gpus())]
    )
    gpus = len(meters)
    print(f"{gpus} GPUs: {[meter.uuid for meter in meters]}", file=sys.stderr, flush=True)
    import torch

    from gpumemnet.learning.dataset.running.warm import warm_up

    if not args.dry_run:
        left_out = warm_up(heldout=True)
        print(
            f"loaded in {time.monotonic() - began:.0f} s; left out: {left_out}", file=sys.stderr, flush=True
        )
    torch.set_num_threads(1)
    children = []
    for gpu in range(gpus):
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            code = 0
            try:
                os.setpgid(0, 0)
                conduct(gpu, gpus, args, stop_at_s, meters[gpu])
            except BaseException:  # noqa: BLE001
                traceback.print_exc()
                code = 1
            finally:
                sys.stderr.flush()
                os._exit(code)
        children.append(pid)
    pending = set(children)
    while pending and time.monotonic() < stop_at_s + 12:
        for pid in list(pending):
            if os.waitpid(pid, os.WNOHANG)[0]:
                pending.discard(pid)
        time.sleep(0.1)
    for pid in pending:
        os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(OSError, ValueError):
            os.killpg(int((state / f"mps.{children.index(pid)}.pid").read_text()), signal.SIGKILL)
    for name in ("activity", "interference"):
        rows = list(read_rows(*sorted(state.glob(f"{name}.*.jsonl"))))
        good = sum(1 for row in rows if row.get("outcome") == "ok")
        bad = sum(1 for row in rows if row.get("outcome") not in (None, "ok"))
        print(f"{name}: {good} rows, {bad} failed")
    print(f"{time.monotonic() - began:.0f} s")
    return 0
