"""`torch.compile`, left out: the step is counted as it runs without: nothing short of compiling tells what it saves.

A compiler fuses operators and recomputes what is cheap, so that its step holds no more between forward and backward
(tests/unit/gpumemnet_trace/test_compiled.py); what it takes besides is not known here, and the user is told.
`torch.jit.trace` is left out likewise: it makes tensors of sizes, which no pretended GPU can compute. What scripts
want it for is TensorBoard's drawing of the model, which is left out with it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from gpumemnet.tracing.script.libraries.imported import After
from gpumemnet.tracing.script.pretend import Said

LEFT_OUT = "torch.compile was left out: the plain step is counted, which a compiled one rarely exceeds"
NOT_COUNTED = "what torch.compile takes for autotuning and CUDA graphs is not in the estimate"
_TAKE_MORE = ("reduce-overhead", "max-autotune")
"""Modes that keep pools of their own for CUDA graphs, or try kernels with memory of their own; or both."""

_WRITERS = ("torch.utils.tensorboard.writer", "tensorboardX.writer")


def left_out(said: Said) -> None:
    """Put all of it in place, for good.

    Args:
        said: Is told of what is used.
    """
    torch.compile = stand_in(said)
    for name in ("trace", "trace_module"):
        setattr(torch.jit, name, _untraced)
    for name in _WRITERS:
        sys.meta_path.insert(0, After(name, functools.partial(_undrawn, name)))


def _untraced(func: Any, *_: Any, **__: Any) -> Any:
    return func


def _undrawn(name: str) -> None:
    """Let a loaded module's SummaryWriter draw no graphs."""
    sys.modules[name].SummaryWriter.add_graph = lambda *_, **__: None


def stand_in(said: Said) -> Callable[..., Any]:
    """Return what stands in for `torch.compile`.

    Args:
        said: Is told of what is used: libraries compile some functions of theirs that no training calls.
    """

    def compile(model: Any = None, *, mode: Any = None, options: Any = None, **_: Any) -> Any:
        def warn() -> None:
            said.warn[LEFT_OUT] = None
            if mode in _TAKE_MORE or options:
                said.warn[NOT_COUNTED] = None

        def left_as_it_is(each: Any) -> Any:
            if isinstance(each, nn.Module):
                warn()
                each.__dict__["_orig_mod"] = each  # not registered: a module within itself has no end
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
