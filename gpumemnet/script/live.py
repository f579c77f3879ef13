"""Inside the script, once torch is there: the pretended GPU, the count of optimizer steps, and the result."""

from __future__ import annotations

import atexit
import gc
import os
import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_flatten

from gpumemnet.errors import GpuMemNetError, TraceError
from gpumemnet.names import Precision
from gpumemnet.saved import make, table
from gpumemnet.saved.of_trace import profile_of
from gpumemnet.saved.record import SavedProfile
from gpumemnet.script import distributed, mixed, pretend
from gpumemnet.script.files import COMMAND, FAILED, RESULT
from gpumemnet.trace import memory_of
from gpumemnet.trace.device import on_cuda
from gpumemnet.trace.inputs import InputSpec
from gpumemnet.trace.recorder import Recorder
from gpumemnet.trace.session import Trace, family_of
from gpumemnet.trace.workspace import Workspaces
from gpumemnet.training import TrainingSetup

STEPS = 2
"""Optimizer steps that are made whole; what follows is watched until the next would begin: its memory is the peak's."""


def begin(folder: str) -> None:
    """Pretend a GPU from now on, in this process.

    Args:
        folder: Where the result goes.
    """
    run = Run(Path(folder))
    run.watch()
    mixed.enter(run.stack, run.recorder)


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
        self.steps = self._made = 0
        self._folder, self._process, self._depth = folder, os.getpid(), 0
        self._inputs: tuple[InputSpec, ...] = ()
        self._batch_size = 0
        self._optimizers: dict[int, torch.optim.Optimizer] = {}
        self._said = pretend.Said(warn=self.recorder.assumptions.warnings)
        self._done = False

    def watch(self) -> None:
        """Hear of steps, backward passes, the first inputs, saves and the end."""
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        pretend.everything(self.stack, self._said, on_save=self._at_save)
        if torch.distributed.is_available():
            distributed.pretended(self.stack, self._said)
        backward = torch.autograd.backward

        def watched_backward(*args: Any, **kwargs: Any) -> Any:
            self.recorder.enter("backward")
            try:
                return backward(*args, **kwargs)
            finally:
                self.recorder.enter("forward")

        torch.autograd.backward = watched_backward
        call = nn.Module.__call__

        def first_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if module.training and torch.is_grad_enabled():
                self._inputs = _specs(args, kwargs)
                if self._inputs:
                    self._batch_size = _samples(args, self._inputs[0])
                    nn.Module.__call__ = call  # type: ignore[method-assign]
                    self.recorder.enter("forward")
            return call(module, *args, **kwargs)

        nn.Module.__call__ = first_call  # type: ignore[method-assign]
        atexit.register(self._at_exit)
        previous = sys.excepthook

        def failed(kind: Any, error: BaseException, trace: Any) -> None:
            previous(kind, error, trace)
            quantized = "bitsandbytes" in sys.modules
            before = "weights that bitsandbytes quantizes are not traced; " if quantized else ""
            self._fail(f"{before}{kind.__name__}: {' '.join(str(error).split())[:300]}")

        sys.excepthook = failed

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._depth += 1
        if self._depth > 1:  # wrapped by another optimizer: one step
            return
        if self.steps == STEPS:
            self._finish()
        self._optimizers[id(optimizer)] = optimizer
        self.recorder.enter("optimizer")

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._depth -= 1
        if self._depth:
            return
        self.recorder.enter("forward")
        # A script with several optimizers makes a step with each of them.
        self._made += 1
        self.steps = self._made // len(self._optimizers)

    def _at_save(self) -> None:
        if self.steps >= STEPS:
            self._finish()

    def _at_exit(self) -> None:
        if os.getpid() == self._process and not self._done and self._optimizers:
            if self.steps >= STEPS:
                self._finish()
            self._fail(f"its optimizer made {self.steps} of {STEPS} steps")

    def _finish(self) -> NoReturn:
        """Write the profile and leave, past whatever the script would do at its end."""
        self._done = True
        try:
            self._write(RESULT, self._saved().to_text())
        except GpuMemNetError as exc:
            self._fail(str(exc))
        except Exception as exc:  # noqa: BLE001 - the script's log is no place for a traceback of ours
            self._fail(f"{type(exc).__name__}: {' '.join(str(exc).split())[:300]}")
        os._exit(0)

    def _fail(self, why: str) -> NoReturn:
        self._done = True
        try:
            text = self._text()
        except Exception:  # noqa: BLE001 - a text is more than was promised
            text = ""
        self._write(FAILED, f"{why}\n{text}")
        os._exit(1)

    def _write(self, name: str, text: str) -> None:
        beside = self._folder / f"{name}.{os.getpid()}"
        beside.write_text(text, encoding="utf-8")
        beside.replace(self._folder / name)

    def _saved(self) -> SavedProfile:
        recorder = self.recorder
        recorder.finish()
        model = _model(self._optimizers)
        trained = [p for o in self._optimizers.values() for group in o.param_groups for p in group["params"]]
        if not any(on_cuda(p) for p in trained):
            raise TraceError("it trains on the CPU: no parameter of its optimizer is on the GPU")
        recorder.mark((p.grad for p in trained), "gradients")
        copies = [m for m in gc.get_objects() if isinstance(m, distributed.DataParallel)]
        recorder.mark([bucket for copy in copies for bucket in copy.buckets], "gradients")
        states = [v for o in self._optimizers.values() for state in o.state.values() for v in _values(state)]
        recorder.mark(states, "optimizer")
        recorder.mark([*trained, *model.parameters(), *model.buffers()], "parameters")
        trace = Trace(
            events=tuple(recorder.events),
            purpose_of=recorder.purposes(),
            phase_starts=tuple(recorder.phase_starts),
            borrowed=recorder.borrowed,
            parameters=sum(p.numel() for p in model.parameters()),
            family=family_of(model),
            warnings=tuple(recorder.assumptions.warnings),
        )
        half = sum(p.numel() for p in model.parameters() if p.element_size() == 2) * 2 > trace.parameters
        precision = Precision.BF16 if half else Precision.AMP if self._said.autocast else Precision.FP32
        first = self._inputs[0]
        tokens = first.shape[1] if len(first.shape) == 2 and first.dtype.startswith("int") else 0
        setup = TrainingSetup(
            optimizer=make.name_of(next(iter(self._optimizers.values()))),
            precision=precision,
            gradient_checkpointing=self._said.checkpointing,
            gpus=self._said.gpus,
        )
        profile = profile_of(memory_of(trace), setup, batch_size=self._batch_size, seq_len=tokens)
        return SavedProfile(
            profiles=(profile,),
            batch_size=self._batch_size,
            model=type(model).__name__,
            inputs=tuple(map(make.written, self._inputs)),
            command=tuple(shlex.split(os.environ.get(COMMAND, ""))),
            versions=make.versions(),
            warnings=trace.warnings,
        )

    def _text(self) -> str:
        """Return the model as a text: a table with shapes if it ran at all, else what print shows."""
        model = _model(self._optimizers)
        if not self._inputs or not any(True for _ in model.parameters()):
            return f"{model}\n"
        printed = f"{model}\n"
        self.stack.close()
        try:
            return f"{table.of_model(make.unfilled_copy(model), self._inputs)}\n"
        except TraceError:
            return printed


def _model(optimizers: dict[int, torch.optim.Optimizer]) -> nn.Module:
    """Return the largest module that is alive, of those that hold what an optimizer trains."""
    trained = {id(p) for o in optimizers.values() for group in o.param_groups for p in group["params"]}
    modules = [found for found in gc.get_objects() if isinstance(found, nn.Module)]
    holders = [m for m in modules if not trained or any(id(p) in trained for p in m.parameters())]
    largest = max(holders, key=lambda m: sum(p.numel() for p in m.parameters()), default=nn.Module())
    return largest.module if isinstance(largest, distributed.DataParallel) else largest


def _specs(args: Any, kwargs: Any) -> tuple[InputSpec, ...]:
    found = []
    for name, value in [*((None, a) for a in args), *kwargs.items()]:
        for leaf in tree_flatten(value)[0]:
            if isinstance(leaf, Tensor) and leaf.dim():
                dtype = str(leaf.dtype).removeprefix("torch.")
                found.append(InputSpec(name=name, shape=tuple(leaf.shape), dtype=dtype))
    return tuple(found)


def _samples(args: Any, first: InputSpec) -> int:
    """Return the size of a batch: of a list of pictures (torchvision's detectors) their number."""
    listed = args[0] if args and isinstance(args[0], (list, tuple)) else ()
    if len(first.shape) == 3 and listed and all(isinstance(each, Tensor) for each in listed):
        return len(listed)
    return first.shape[0]


def _values(state: Any) -> list[Tensor]:
    return [value for value in state.values() if isinstance(value, Tensor)]
