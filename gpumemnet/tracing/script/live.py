"""Run inside the script once torch is loaded: pretend a GPU, count optimizer steps and write the result."""

from __future__ import annotations

import atexit
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gpumemnet.errors import GpuMemNetError, TraceError
from gpumemnet.tracing.script import mixed, outcome, pretend
from gpumemnet.tracing.script.failures import OF_RANKS, OWN, Failures, first_of, of_trace, place_of, why
from gpumemnet.tracing.script.files import COURSE, FAILED, RESULT
from gpumemnet.tracing.script.libraries import (
    checkpoints,
    compiled,
    detectors,
    distributed,
    keras,
    kernels,
    paged,
)
from gpumemnet.tracing.script.libraries.evaluation import Evaluations
from gpumemnet.tracing.script.loaders import tensors_in
from gpumemnet.tracing.script.observations import ScriptObservations
from gpumemnet.tracing.script.rounds import MORE, SELDOM, STEPS, alive
from gpumemnet.tracing.script.streams import Streams
from gpumemnet.tracing.trace.cuda.tensors import local, on_cuda
from gpumemnet.tracing.trace.recording.recorder import Recorder
from gpumemnet.tracing.trace.recording.workspace import Workspaces

PASSES = 64
"""Backward passes after which a script without an optimizer is unlikely to create one."""


def begin(folder: str) -> None:
    """Pretend a GPU from now on, in this process."""
    run = ScriptRun(Path(folder))
    run.watch()
    mixed.enter(run.stack, run.recorder)
    distributed.counted(run.stack)
    kernels.left_out()


class ScriptRun:
    """One script's run.

    Attributes:
        recorder: Records allocations.
        stack: Entered contexts; never left, as the process ends first.
    """

    def __init__(self, folder: Path) -> None:
        self.recorder = Recorder(Workspaces())
        self.stack = ExitStack()
        self._passes = 0
        self._folder, self._process, self._depth = folder, os.getpid(), 0
        self._seen = ScriptObservations(settings=pretend.Settings(warn=self.recorder.assumptions.warnings))
        self._evaluations, self._saves, self._failures = (
            Evaluations(self.recorder),
            checkpoints.Saves(),
            Failures(),
        )
        self._done = self._within = False
        self._first = True
        self._interrupted = "forward"

    def watch(self) -> None:
        """Install the hooks for steps, backward passes, the first inputs, saves and the end."""
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        settings = self._seen.settings
        pretend.everything(self.stack, settings, Streams(self.recorder), on_save=self._at_save)
        compiled.left_out(settings)
        keras.pretended(
            self._before_step, self._after_step, lambda *call: self._before_call(call[0], call[1:], {})
        )
        self._saves.pretended(self.stack)
        if torch.distributed.is_available():
            distributed.pretended(self.stack, settings, self.recorder)
        backward = torch.autograd.backward

        def watched_backward(*args: Any, **kwargs: Any) -> Any:
            self._first = False
            within, self._within = self._within, True  # recomputation is no call of a model
            self.recorder.enter("backward")
            try:
                return backward(*args, **kwargs)
            finally:
                self._within = within
                self.recorder.enter("forward")
                self._after_backward()

        torch.autograd.backward = watched_backward

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._within or not _trains(module):
                return self._evaluations.call(module, *args, **kwargs)
            self._within = True
            try:
                self._before_call(module, args, kwargs)
                return self._evaluations.call(module, *args, **kwargs)
            finally:
                self._within = False

        nn.Module.__call__ = call  # type: ignore[method-assign]
        atexit.register(self._at_exit)
        self._failures.watch(self._failed)

    def _failed(self, error: BaseException) -> NoReturn:
        """Report why the script ended by an exception; one after its steps does not prevent the result."""
        kind = type(error).__name__
        if kind in OF_RANKS and (self._folder / FAILED).exists():
            os._exit(1)  # a rank's message is worth more
        if kind == "ChildFailedError":
            rank = error.get_first_failure()[1]  # type: ignore[attr-defined]
            self._fail(f"rank {rank.local_rank} ended with status {rank.exitcode} before it made two steps")
        first = first_of(error)
        cause = why(type(first).__name__, str(first), read=mixed.Read.values, place=place_of(first))
        too_soon = isinstance(first, (EOFError, FileNotFoundError)) and self._saves.missing
        if too_soon:
            cause = checkpoints.TOO_SOON  # it reads a checkpoint that was not written
        if self._seen.rounds.whole >= STEPS:
            self._seen.settings.warn[f"traced until the script failed after {STEPS} steps: {cause}"] = None
            self._finish()
        untouched = not self.recorder.events and self._seen.settings.gpus == 1
        processes = kind in (*OF_RANKS, "ProcessRaisedException")  # their work is not seen here
        internal = too_soon or isinstance(first, GpuMemNetError) or of_trace(type(first).__name__, str(first))
        by_itself = untouched and not processes and not internal
        self._fail(f"{OWN if by_itself else ''}{cause}")

    def _before_call(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Record what a model is called with; some determine sizes on the CPU before they move."""
        models = self._seen.called(module, args, kwargs, first=self._first)
        if not models or not self._first:
            return
        leaves = list(tensors_in((args, kwargs)))
        if not any(on_cuda(local(each)) for each in (*leaves, next(module.parameters()))):
            return
        detectors.pretended()
        # Everything before this was for the model, except its inputs.
        self.recorder.mark(leaves, "activations")
        self.recorder.enter("forward")

    def _after_backward(self) -> None:
        self._passes += 1
        self._seen.settings.passed()
        self._evaluations.forget()
        if self._passes == PASSES and not alive():
            raise TraceError(
                f"it made {PASSES} backward passes without an optimizer of torch.optim, "
                "which marks the steps: give it one"
            )

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._depth += 1
        if self._depth > 1:  # wrapped by another optimizer: one step
            return
        # With unequal batches, three sizes are met, one in each step; what the script draws itself is met by chance.
        more = MORE if self._seen.changing else 0
        self._seen.rounds.wanted = STEPS + max(more, self._seen.settings.differ)
        if self._seen.rounds.enough:
            self._finish()
        self._seen.rounds.begin(optimizer)
        paged.pretended(self._seen.settings)
        self._interrupted = "backward" if self.recorder.phase == "backward" else "forward"
        self.recorder.enter("optimizer")

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._depth -= 1
        if self._depth:
            return
        self.recorder.enter(self._interrupted)
        self._seen.rounds.end(optimizer)
        self._evaluations.forget()

    def _at_save(self, saved: Any, into: Any) -> bool:
        """Record what is saved; return whether to write it."""
        rounds = self._seen.rounds
        if rounds.whole >= rounds.wanted:
            self._finish()
        if not rounds.optimizers and checkpoints.of_data(saved, into):
            return True
        self._saves.into(into)
        return False

    def _at_exit(self) -> None:
        if os.getpid() != self._process or self._done:
            return
        error = self._failures.last()
        if error is not None:
            self._failed(error)
        if self._seen.rounds.optimizers:
            if self._seen.rounds.whole >= STEPS:
                self._finish()
            self._fail(f"its optimizer made {self._seen.rounds.whole} of {STEPS} steps")

    def _finish(self) -> NoReturn:
        """Write the profile and exit, skipping whatever the script would do at its end."""
        self._done = True
        settings = self._seen.settings
        warnings = [*settings.missed, self._seen.changing, SELDOM if self._seen.rounds.seldom else ""]
        settings.warn.update(dict.fromkeys(filter(None, warnings)))
        try:
            made = outcome.saved_profile(self._seen, self.recorder).to_text()
            self._write(COURSE, outcome.course(self._seen, self.recorder))
            self._write(RESULT, made)
        except GpuMemNetError as exc:
            self._fail(str(exc))
        except Exception as exc:  # noqa: BLE001 - the script's log should not show RAD's traceback
            self._fail(f"{type(exc).__name__}: {' '.join(str(exc).split())[:300]}")
        os._exit(0)

    def _fail(self, why: str) -> NoReturn:
        self._done = True
        try:
            text = outcome.text(self._seen, self.stack)
        except Exception:  # noqa: BLE001 - a text is optional
            text = ""
        self._write(FAILED, f"{why}\n{text}")
        os._exit(1)

    def _write(self, name: str, text: str) -> None:
        draft = self._folder / f"{name}.{os.getpid()}"
        draft.write_text(text, encoding="utf-8")
        draft.replace(self._folder / name)


def _trains(module: nn.Module) -> bool:
    """Return whether a module's call may be training; one without weights changes pictures or computes a loss."""
    return module.training and torch.is_grad_enabled() and any(True for _ in module.parameters())
