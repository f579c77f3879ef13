"""Worker process that steps one training on command, and its handle in the parent."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import traceback
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import torch

from gpu_campaign.training import TrainingLoop
from gpumemnet.learning.dataset.config import Configuration
from gpumemnet.tracing.script.processes import end_with_parent

BACKLOG = 4
"""Batches that a loader keeps ready, as PyTorch's does with two workers and its default prefetching."""


def _loop(
    training: TrainingLoop, pipe: Connection, steps: Any, slot: int, period_s: float | None
) -> dict[str, Any]:
    """Train until something comes through the pipe; return when each step began, was issued and ended."""
    begins: list[float] = []
    issued: list[float] = []
    ends: list[float] = []
    before: Any = None
    ready = time.monotonic()
    taken: list[float] = []
    while not pipe.poll(0):
        if period_s is not None:
            # The loader makes one batch each period, and waits while its queue of BACKLOG is full.
            if taken:
                space = taken[-BACKLOG] if len(taken) >= BACKLOG else taken[0]
                ready = max(ready, space) + period_s
            while (left := ready - time.monotonic()) > 0:
                if pipe.poll(min(left, 0.5)):
                    break
            if pipe.poll(0):
                break
        begins.append(time.monotonic())
        taken.append(begins[-1])
        training.step()
        issued.append(time.monotonic())
        if period_s is not None or not training.cuda:
            training.wait()
            ends.append(time.monotonic())
        else:
            # One step is always issued ahead, as when a loss is read a step late.
            event = torch.cuda.Event()
            event.record()
            if before is not None:
                before.synchronize()
                ends.append(time.monotonic())
            before = event
        steps[slot] = len(ends)
    if before is not None:
        before.synchronize()
        ends.append(time.monotonic())
    return {"begins": begins, "issued": issued, "ends": ends}


def _memory(training: TrainingLoop) -> dict[str, Any]:
    if not training.cuda:
        return {}
    return {
        "allocated_peak_bytes": torch.cuda.max_memory_allocated(),
        "reserved_peak_bytes": torch.cuda.max_memory_reserved(),
        "reserved_end_bytes": torch.cuda.memory_reserved(),
    }


def _free(device: torch.device) -> bool:
    """Give everything back; return whether nothing is left."""
    gc.collect()
    if device.type != "cuda":
        return True
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_stats().get("reserved_bytes.all.current", 0) == 0


def _serve(pipe: Connection, device: torch.device, steps: Any, slot: int) -> None:
    training: TrainingLoop | None = None
    while True:
        order = pipe.recv()
        do = order["do"]
        try:
            if do == "hello":
                if device.type == "cuda":
                    torch.cuda.init()
                    x = torch.randn(8, 8, 16, 16, device=device)
                    torch.nn.functional.conv2d(x, torch.randn(8, 8, 3, 3, device=device))
                    (x[0, 0] @ x[0, 1]).sum().item()
                    torch.cuda.synchronize()
                    del x
                    _free(device)
                answer: dict[str, Any] = {}
            elif do == "prepare":
                begin = time.monotonic()
                training = TrainingLoop(Configuration.from_json(order["config"]), device)
                training.prepare()
                answer = {"prepare_s": round(time.monotonic() - begin, 3)}
            elif do == "load":
                assert training is not None
                begin = time.monotonic()
                training.load()
                warm_s = training.warm_up(order["least_steps"], order["least_s"], order["most_s"])
                answer = {
                    "warm_step_s": round(warm_s, 6),
                    "load_s": round(time.monotonic() - begin, 3),
                    "params": training.params,
                } | _memory(training)
            elif do == "run":
                assert training is not None
                steps[slot] = 0
                answer = _loop(training, pipe, steps, slot, order.get("period_s")) | _memory(training)
                assert pipe.recv()["do"] == "stop"
            elif do == "drop":
                training = None
                answer = {"clean": _free(device)}
            elif do == "stop":
                continue
            else:
                return
            pipe.send({"say": do, "ok": True} | answer)
        except torch.OutOfMemoryError as exc:
            training = None
            _free(device)
            pipe.send({"say": do, "ok": False, "outcome": "oom", "error": str(exc).split(". ")[0][:200]})
        except Exception as exc:  # noqa: BLE001 - every fault becomes a record
            where = traceback.extract_tb(exc.__traceback__)[-1]
            training = None
            text = f"{type(exc).__name__}: {exc} ({os.path.basename(where.filename)}:{where.lineno})"
            pipe.send({"say": do, "ok": False, "outcome": "error", "error": text[:500]})


def _child(
    pipe: Connection, environment: dict[str, str], device_name: str, steps: Any, slot: int, parent: int
) -> None:
    try:
        end_with_parent(parent)
        os.environ.update(environment)
        torch.set_num_threads(1)
        gc.freeze()
        _serve(pipe, torch.device(device_name), steps, slot)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        pass
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


class WorkerGone(Exception):
    """The worker ended or did not answer in time; it has been killed."""


class Worker:
    """A worker process, seen from the conductor."""

    def __init__(self, name: str, environment: dict[str, str], device: str, steps: Any, slot: int) -> None:
        self.name, self.steps, self.slot = name, steps, slot
        self.pipe, other = Pipe()
        self.rows = 0
        sys.stdout.flush()
        sys.stderr.flush()
        conductor = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self.pipe.close()
            _child(other, environment, device, steps, slot, conductor)
        other.close()
        self.alive = True

    def send(self, do: str, **values: Any) -> None:
        """Send an order.

        Raises:
            WorkerGone: It is no more.
        """
        try:
            self.pipe.send({"do": do} | values)
        except (BrokenPipeError, OSError) as exc:
            self.kill()
            raise WorkerGone(f"{self.name}: ended before {do}") from exc

    def answer(self, do: str, timeout_s: float) -> dict[str, Any]:
        """Return the answer to an order.

        Raises:
            WorkerGone: It ended or took too long.
        """
        try:
            if not self.pipe.poll(max(0.0, timeout_s)):
                self.kill()
                raise WorkerGone(f"{self.name}: no answer to {do} in {timeout_s:.0f} s")
            answer: dict[str, Any] = self.pipe.recv()
        except (EOFError, OSError) as exc:
            self.kill()
            raise WorkerGone(f"{self.name}: ended in {do}") from exc
        if answer.get("say") != do:
            self.kill()
            raise WorkerGone(f"{self.name}: answered {answer.get('say')} to {do}")
        return answer

    def kill(self) -> None:
        """End it for good."""
        if not self.alive:
            return
        self.alive = False
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        self.pipe.close()
