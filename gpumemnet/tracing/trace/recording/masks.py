"""Bound the number of elements that a mask can choose, if it was made by filling that many places of zeros.

Detectors' samplers choose boxes this way (torchvision's takes 512 of an image's 2,000). Values are assumed not to be
NaN or infinite, and a loss to have neither diverged nor converged: a script that stops in that case continues. For some
numbers, the maximum count above zero is passed in (`positive_at_most`): a detector's labels. Any mask that is not
followed here may choose everything.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

aten = torch.ops.aten
_MASKS = (torch.bool, torch.uint8)
_ZEROS = (aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)
_JOINED = (aten.bitwise_or.Tensor, aten.logical_or.default, aten.cat.default)
_NEVER = (aten.isnan.default, aten.isinf.default, aten.isposinf.default, aten.isneginf.default)
_LOSS = 1.0
_COMPARED: dict[Any, Callable[[Any, Any], bool]] = {
    aten.gt.Scalar: operator.gt,
    aten.ge.Scalar: operator.ge,
    aten.lt.Scalar: operator.lt,
    aten.le.Scalar: operator.le,
}
"""Comparisons of a single GPU number, a loss or a norm of gradients, with a limit."""
_UNLIKE = (aten.ne.Tensor,)
"""Only NaN differs from itself."""
_KEPT = (
    *(getattr(packet, name) for packet in (aten.any, aten.all) for name in packet.overloads()),
    *(aten.logical_and.default, aten.bitwise_and.Tensor, aten.mul.Tensor),
    *(aten._to_copy.default, aten.clone.default, aten.alias.default, aten.detach.default, aten.view.default),
)
"""Operators that map a mask that chooses nothing to one that chooses nothing."""
_UNKNOWN = -10
_KNOWN = "_rad_at_most"
"""Attribute of a mask: (elements, version), valid until another operator writes to the mask."""
_POSITIVE = "_rad_positive_at_most"
"""Attribute of numbers: (elements above zero, version), valid likewise."""


def at_most(mask: Tensor) -> int:
    """Return the maximum number of elements that a mask chooses."""
    known = getattr(mask, _KNOWN, None)
    return (
        mask.numel() if known is None or not 0 <= known[1] == _version(mask) else min(known[0], mask.numel())
    )


def nothing(mask: Tensor) -> bool:
    """Return whether a mask is known to choose nothing."""
    return hasattr(mask, _KNOWN) and at_most(mask) == 0


def positive_at_most(numbers: Tensor, elements: int) -> None:
    """Record the maximum number of elements above zero.

    Args:
        numbers: Any tensor.
        elements: The maximum.
    """
    setattr(numbers, _POSITIVE, (elements, _version(numbers)))


def follow(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any] | None:
    """Run an operator that makes or fills a mask, and record what it can choose; return None for others, without a run.

    Args:
        func: The operator.
        args: Its positional arguments.
        kwargs: Its arguments by name.
    """
    positive = _positive(func, args)
    if positive is not None:
        return _noted(func(*args, **kwargs), positive)
    if func in _ZEROS:
        out = func(*args, **kwargs)
        return _noted(out, 0)
    if func in _JOINED:
        parts = args[0] if func is aten.cat.default else args[:2]
        if not all(isinstance(each, FakeTensor) and each.dtype in _MASKS for each in parts):
            return None
        out = func(*args, **kwargs)
        return _noted(out, sum(map(at_most, parts)))
    if func in _NEVER or (func in _UNLIKE and args[0] is args[1]):
        return _noted(func(*args, **kwargs), 0) if isinstance(args[0], FakeTensor) else None
    if func in _COMPARED and _single(args[0]) and not _COMPARED[func](_LOSS, args[1]):
        return _noted(func(*args, **kwargs), 0)
    if func in _KEPT and any(isinstance(each, FakeTensor) and nothing(each) for each in args[:2]):
        return _noted(func(*args, **kwargs), 0)
    if func in _WRITES and isinstance(args[0], FakeTensor) and args[0].dtype in _MASKS:
        written = _WRITES[func](*args)
        if written is None:
            return None
        before = at_most(args[0])
        func(*args, **kwargs)
        return _noted(args[0], before + written, later=1)  # the version is raised afterwards
    return None


def _positive(func: Any, args: Any) -> int | None:
    """Return the maximum number of elements above zero for a comparison with zero, if known."""
    known = getattr(args[0], _POSITIVE, None) if args else None
    if func is not aten.gt.Scalar or known is None or args[1] < 0:
        return None
    return int(known[0]) if 0 <= known[1] == _version(args[0]) else None


def _single(tensor: Any) -> bool:
    """Return whether a tensor is a single number that the pretended GPU would have computed."""
    return (
        isinstance(tensor, FakeTensor)
        and not tensor.dim()
        and tensor.is_floating_point()
        and tensor.fake_device.type == "cuda"
    )


def _noted(mask: Any, elements: int, *, later: int = 0) -> tuple[Any]:
    if isinstance(mask, FakeTensor) and mask.dtype in _MASKS:
        setattr(mask, _KNOWN, (elements, _version(mask) + later))
    return (mask,)


def _version(mask: Tensor) -> int:
    """Return the number of in-place writes; unknown for inference tensors, which do not count them."""
    return _UNKNOWN if mask.is_inference() else mask._version


def _places(mask: Tensor, indices: Sequence[Any], *_: Any) -> int | None:
    """Return how many places an assignment writes; None if it chooses rows or uses a mask."""
    if len(indices) != mask.dim() or any(i is None or i.dtype in _MASKS for i in indices):
        return None
    return torch.broadcast_shapes(*(i.shape for i in indices)).numel()


def _slices(mask: Tensor, dim: int, index: Tensor, *_: Any) -> int:
    """Return how many places lie in the slices that are filled."""
    return index.numel() * (mask.numel() // max(1, mask.shape[dim])) if mask.dim() else 1


_WRITES: dict[Any, Callable[..., int | None]] = {
    aten.index_put_.default: _places,
    aten.index_fill_.int_Scalar: _slices,  # `mask[index] = 1` from PyTorch 2.15 on
    aten.index_fill_.int_Tensor: _slices,
}
