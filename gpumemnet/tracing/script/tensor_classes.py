"""Change the class of a tensor that moves to the GPU: every tensor there is a fake one."""

from __future__ import annotations

from copyreg import _slotnames  # type: ignore[attr-defined]
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

_PLAIN = (Tensor, nn.Parameter, FakeTensor)
_make_subclass = Tensor._make_subclass
_new_fake = FakeTensor.__new__


def swap(one: Tensor, other: Tensor) -> None:
    """Act as `torch.utils.swap_tensors`, which refuses fake tensors: their mode holds weak references to them.

    Args:
        one: Becomes the other.
        other: Becomes the one.
    """
    one.__class__, other.__class__ = other.__class__, one.__class__
    one.__dict__, other.__dict__ = other.__dict__, one.__dict__
    for name in {*_slotnames(type(one))} & {*_slotnames(type(other))}:  # a sharded tensor's part
        if hasattr(one, name) and hasattr(other, name):
            mine, its = getattr(one, name), getattr(other, name)
            setattr(one, name, its)
            setattr(other, name, mine)
    torch._C._swap_tensor_impl(one, other)


def become(tensor: Tensor, value: Tensor) -> None:
    """Act as `tensor.data = value` for a CPU tensor and a GPU value, which differ in class here.

    Args:
        tensor: Moves to the GPU and keeps its attributes.
        value: A fake tensor.
    """
    new = value.detach().requires_grad_(tensor.requires_grad)
    if isinstance(tensor, nn.Parameter):
        new = nn.Parameter(new, tensor.requires_grad)
    if type(tensor) not in _PLAIN:
        new = _of(_both(type(tensor)), new, tensor)
    swap(tensor, new)


def of_class(kind: Any, data: Tensor, requires_grad: bool = False, **how: Any) -> Tensor:
    """Act as `torch.Tensor._make_subclass`, which does not accept fake tensors.

    Args:
        kind: A class of tensors.
        data: Its data.
        requires_grad: Whether it is trained.
        **how: Further arguments.
    """
    if not isinstance(data, FakeTensor) or kind in _PLAIN:
        return _make_subclass(kind, data, requires_grad, **how)
    new = data.detach().requires_grad_(requires_grad)
    new.__class__ = _both(kind)
    return new


def of_same_class(kind: Any, *args: Any, **how: Any) -> Any:
    """Act as `type(parameter)(data, requires_grad=...)`, which libraries write to replace a parameter.

    Args:
        kind: Class of a tensor on the GPU, which is a fake one whatever the script made.
        *args: Arguments of `nn.Parameter` or of the class that the tensor had; or those of a fake tensor.
        **how: Further arguments.
    """
    if "fake_mode" in how or (args and isinstance(args[0], FakeTensorMode)):
        return _new_fake(kind, *args, **how)
    own = nn.Parameter if kind is FakeTensor else kind.__bases__[-1]
    return own(*args, **how)


def copied(tensor: Tensor) -> Tensor:
    """Act as `copy.copy`: a tensor with the same storage and attributes."""
    new = tensor.detach().requires_grad_(tensor.requires_grad)
    return _of(type(tensor), new, tensor)


def _of(kind: Any, tensor: Tensor, like: Tensor) -> Tensor:
    """Give a fake tensor a further class, with the attributes of another tensor of that class."""
    tensor.__class__ = kind
    tensor.__dict__.update(
        {name: value for name, value in like.__dict__.items() if name not in tensor.__dict__}
    )
    return tensor


def _detached(tensor: Tensor) -> Tensor:
    """Act as `detach`, which `nn.Parameter` expects to keep the class."""
    return _of(type(tensor), Tensor.detach(tensor), tensor)


@cache
def _both(kind: Any) -> Any:
    """Return a class of fake tensors that also derives from another class."""
    plain = {"__torch_function__": torch._C._disabled_torch_function_impl, "detach": _detached}
    return type(kind)(kind.__name__, (FakeTensor, kind), plain)
