"""Packed sequences (`pack_padded_sequence`): lengths are unknown in a trace, so all are taken as the padded length.

PyTorch keeps the number of sequences at each step in a CPU tensor, and reads it. Here it is the same number at every
step, which is remembered. Source: aten/src/ATen/native/PackedSequence.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpumemnet.tracing.trace.cuda import recurrent

aten = torch.ops.aten
WARNING = "sequences of a packed batch were all taken to be as long as the longest"
_EACH = "_rad_each"
"""Attribute of a tensor whose elements are all this integer."""


def value_of(tensor: Tensor) -> int | None:
    """Return the common value of a tensor's elements; None if unknown."""
    return getattr(tensor, _EACH, None)


def follow(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any] | None:
    """Run an operator that takes an element of such a tensor; return None for others, without a run.

    Args:
        func: The operator.
        args: Its positional arguments.
        kwargs: Its arguments by name.
    """
    if func is not aten.select.int or value_of(args[0]) is None:
        return None
    return (_each(func(*args, **kwargs), value_of(args[0])),)


def pack(padded: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """Return the concatenated steps of all sequences, and the number of sequences at each step.

    Args:
        padded: (steps, batch, ...), or (batch, steps, ...) if `batch_first`.
        batch_first: Order of its dimensions.
    """
    batch, steps = padded.shape[:2] if batch_first else (padded.shape[1], padded.shape[0])
    data = padded.new_empty((steps * batch, *padded.shape[2:]))
    return data, _full(steps, batch)


def _full(size: int, value: int) -> Tensor:
    return _each(torch.full((size,), value, dtype=torch.int64), value)


def _each(tensor: Tensor, value: int | None) -> Tensor:
    setattr(tensor, _EACH, value)
    return tensor


def _pack_backward(grad: Tensor, input_size: Sequence[int], sizes: Tensor, batch_first: bool) -> Tensor:
    return grad.new_zeros(tuple(input_size))


def _pad(
    data: Tensor, sizes: Tensor, batch_first: bool, padding_value: float, total_length: int
) -> tuple[Tensor, Tensor]:
    steps, batch = sizes.shape[0], value_of(sizes)
    if batch is None:
        raise NotImplementedError("a packed sequence that was not packed by pack_padded_sequence")
    out = data.new_full((max(steps, total_length), batch, *data.shape[1:]), padding_value)
    out[:steps].copy_(data.view(steps, batch, *data.shape[1:]))
    return (out.transpose(0, 1) if batch_first else out), _full(batch, steps)


def _layer(kind: str, data: Tensor, sizes: Tensor, *how: Any) -> tuple[Tensor, ...]:
    """Run a recurrent layer; `how` are the arguments of `recurrent.run` from the states on."""
    return recurrent.run(kind, data, *how)


KERNELS: dict[str, Callable[..., Any]] = {
    "_pack_padded_sequence_backward": _pack_backward,
    "_pad_packed_sequence": _pad,
    "lstm.data": partial(_layer, "lstm"),
    "gru.data": partial(_layer, "gru"),
    "rnn_tanh.data": partial(_layer, "rnn"),
    "rnn_relu.data": partial(_layer, "rnn"),
}
"""Replacements of PyTorch's kernels, for tensors on CUDA."""
