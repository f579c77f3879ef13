"""Inside the script, once torch is there: the pretended GPU, the count of optimizer steps, and the result."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_flatten

from gpumemnet.errors import GpuMemNetError, TraceError
from gpumemnet.script import compiled, detectors, distributed, mixed, outcome, paged, pretend
from gpumemnet.script.files import FAILED, RESULT
from gpumemnet.script.streams import Streams
from gpumemnet.trace.recorder import Recorder
from gpumemnet.trace.workspace import Workspaces

STEPS = 2
"""Optimizer steps that are made whole; what follows is watched until the next would begin: its memory is the peak's."""
PASSES = 64
"""Backward passes after which a script that has made no optimizer will hardly make one."""


def begin(folder: str) -> None:
    """Pretend a GPU from now on, in this process.

    Args:
        folder: Where the result goes.
    """
    run = Run(Path(folder))
    run.watch()
    mixed.enter(run.stack, run.recorder)
    distributed.counted(run.stack)


def why(kind: str, words: str) -> str:
    """Return in one line why a script's exception ended its trace.

    Args:
        kind: Class of the exception.
        words: What it says.
    """
    if kind in ("DynamicOutputShapeException", "DataDependentOutputException"):
        return f"what {words.removeprefix('aten.').split('.')[0]} gives depends on values, and a trace computes none"
    if "CUDA driver version is insufficient" in words or "Found no NVIDIA driver" in words:
        return "it calls the CUDA driver itself (a CUDA graph, a kernel of its own), and here is none"
    if "_share_fd_: only available on CPU" in words or "_share_filename_: only available on CPU" in words:
        return "it shares tensors of the GPU with processes of its own, and a trace runs one: try it with one process"
    return words if kind == "TraceError" else f"{kind}: {' '.join(words.split())[:300]}"


class Run:
    """One script's run.

    Attributes:
        recorder: Notes allocations.
        stack: What has been entered; never left, as the process ends first.
        steps: Optimizer steps so far.
    """

    def __init__(self, folder: Path) -> None:
        self.recorder = Recorder(Workspaces())
        self.stack = ExitStack()
        self.steps = self._made = self._passes = 0
        self._folder, self._process, self._depth = folder, os.getpid(), 0
        self._seen = outcome.Seen(said=pretend.Said(warn=self.recorder.assumptions.warnings))
        self._done = False

    def watch(self) -> None:
        """Hear of steps, backward passes, the first inputs, saves and the end."""
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        said = self._seen.said
        pretend.everything(self.stack, said, Streams(self.recorder), on_save=self._at_save)
        torch.compile = compiled.stand_in(said)
        if torch.distributed.is_available():
            distributed.pretended(self.stack, said, self.recorder)
        backward = torch.autograd.backward

        def watched_backward(*args: Any, **kwargs: Any) -> Any:
            self.recorder.enter("backward")
            try:
                return backward(*args, **kwargs)
            finally:
                self.recorder.enter("forward")
                self._after_backward()

        torch.autograd.backward = watched_backward
        call = nn.Module.__call__

        def first_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            # A module without weights changes pictures or makes a loss; it is no model.
            models = module.training and torch.is_grad_enabled() and any(True for _ in module.parameters())
            if models and self._seen.called(args, kwargs):
                nn.Module.__call__ = call  # type: ignore[method-assign]
                detectors.pretended()
                # What came before this was for the model, but for what it is called with.
                leaves = tree_flatten((args, kwargs))[0]
                self.recorder.mark((leaf for leaf in leaves if isinstance(leaf, torch.Tensor)), "activations")
                self.recorder.enter("forward")
            return call(module, *args, **kwargs)

        nn.Module.__call__ = first_call  # type: ignore[method-assign]
        atexit.register(self._at_exit)
        previous = sys.excepthook

        def failed(kind: Any, error: BaseException, trace: Any) -> None:
            previous(kind, error, trace)
            if kind.__name__ == "ChildFailedError":  # torchrun: what a rank said is worth more
                if (self._folder / FAILED).exists():
                    os._exit(1)
                first = error.get_first_failure()[1]  # type: ignore[attr-defined]
                self._fail(
                    f"rank {first.local_rank} ended with status {first.exitcode} before it made two steps"
                )
            self._fail(why(kind.__name__, str(error)))

        sys.excepthook = failed

    def _after_backward(self) -> None:
        self._passes += 1
        if self._passes == PASSES and not outcome.optimizers():
            raise TraceError(
                f"it made {PASSES} backward passes without an optimizer of torch.optim, by which steps are told: "
                "give it one"
            )

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._depth += 1
        if self._depth > 1:  # wrapped by another optimizer: one step
            return
        if self.steps == STEPS:
            self._finish()
        self._seen.optimizers[id(optimizer)] = optimizer
        paged.pretended(self._seen.said)
        self.recorder.enter("optimizer")

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._depth -= 1
        if self._depth:
            return
        self.recorder.enter("forward")
        # A script with several optimizers makes a step with each of them.
        self._made += 1
        self.steps = self._made // len(self._seen.optimizers)

    def _at_save(self, into: Any) -> None:
        if self.steps >= STEPS:
            self._finish()
        if not isinstance(into, (str, os.PathLike)):  # the script would write what it finds in there: nothing
            raise TraceError(
                f"it saves after {self.steps} of {STEPS} optimizer steps: let it train for longer"
            )

    def _at_exit(self) -> None:
        if os.getpid() == self._process and not self._done and self._seen.optimizers:
            if self.steps >= STEPS:
                self._finish()
            self._fail(f"its optimizer made {self.steps} of {STEPS} steps")

    def _finish(self) -> NoReturn:
        """Write the profile and leave, past whatever the script would do at its end."""
        self._done = True
        try:
            self._write(RESULT, outcome.saved_profile(self._seen, self.recorder).to_text())
        except GpuMemNetError as exc:
            self._fail(str(exc))
        except Exception as exc:  # noqa: BLE001 - the script's log is no place for a traceback of ours
            self._fail(f"{type(exc).__name__}: {' '.join(str(exc).split())[:300]}")
        os._exit(0)

    def _fail(self, why: str) -> NoReturn:
        self._done = True
        try:
            text = outcome.text(self._seen, self.stack)
        except Exception:  # noqa: BLE001 - a text is more than was promised
            text = ""
        self._write(FAILED, f"{why}\n{text}")
        os._exit(1)

    def _write(self, name: str, text: str) -> None:
        beside = self._folder / f"{name}.{os.getpid()}"
        beside.write_text(text, encoding="utf-8")
        beside.replace(self._folder / name)
