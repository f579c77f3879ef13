"""Skip `torch.compile`: the step is counted without it, since its savings are unknown without compiling.

A compiler fuses operators and recomputes cheap ones, so its step holds no more between forward and backward
(tests/unit/gpumemnet_trace/libraries/test_compiled.py). Its additional memory is unknown here, and the user is warned.
`torch.jit.trace` is skipped as well: it makes tensors of sizes, which no pretended GPU can compute. Scripts mostly use
it for TensorBoard's drawing of the model, which is skipped with it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from gpumemnet.tracing.script.libraries.imported import After
from gpumemnet.tracing.script.pretend import Settings

LEFT_OUT = "torch.compile was left out: the plain step is counted, which a compiled one rarely exceeds"
NOT_COUNTED = "what torch.compile takes for autotuning and CUDA graphs is not in the estimate"
_TAKE_MORE = ("reduce-overhead", "max-autotune")
"""Modes with separate memory pools for CUDA graphs, with trial kernels that use memory, or both."""

_WRITERS = ("torch.utils.tensorboard.writer", "tensorboardX.writer")


def left_out(settings: Settings) -> None:
    """Replace `torch.compile`, `torch.jit.trace` and the drawing, permanently."""
    torch.compile = stand_in(settings)
    for name in ("trace", "trace_module"):
        setattr(torch.jit, name, _untraced)
    for name in _WRITERS:
        sys.meta_path.insert(0, After(name, functools.partial(_undrawn, name)))


def _untraced(func: Any, *_: Any, **__: Any) -> Any:
    return func


def _undrawn(name: str) -> None:
    """Make the SummaryWriter of a loaded module skip graphs."""
    sys.modules[name].SummaryWriter.add_graph = lambda *_, **__: None


def stand_in(settings: Settings) -> Callable[..., Any]:
    """Return the replacement for `torch.compile`.

    Args:
        settings: Receives each use when called: libraries compile functions that training may never call.
    """

    def compile(model: Any = None, *, mode: Any = None, options: Any = None, **_: Any) -> Any:
        def warn() -> None:
            settings.warn[LEFT_OUT] = None
            if mode in _TAKE_MORE or options:
                settings.warn[NOT_COUNTED] = None
                settings.kinds.add("compiled")

        def left_as_it_is(each: Any) -> Any:
            if isinstance(each, nn.Module):
                warn()
                each.__dict__["_orig_mod"] = each  # not registered: it would contain itself
                return each
            if isinstance(each, type):
                return each

            @functools.wraps(each)
            def called(*args: Any, **kwargs: Any) -> Any:
                warn()
                return each(*args, **kwargs)

            return called

        return left_as_it_is if model is None else left_as_it_is(model)

    return compile
