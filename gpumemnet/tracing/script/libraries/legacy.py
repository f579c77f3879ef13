"""PyTorch's legacy tensor types, which scripts still use: `torch.cuda.FloatTensor`.

The originals allocate through the driver, which cannot be pretended; here they act like `device="cuda"`.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad

from gpumemnet.tracing.trace.cuda.device import replaced
from gpumemnet.tracing.trace.cuda.tensors import CUDA, on_cuda

_DTYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "LongTensor": torch.int64,
    "IntTensor": torch.int32,
    "ShortTensor": torch.int16,
    "CharTensor": torch.int8,
    "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class _Kind(type):
    """A legacy GPU tensor type: it makes tensors but is not their class."""

    dtype: torch.dtype

    def __instancecheck__(cls, tensor: Any) -> bool:
        return isinstance(tensor, Tensor) and on_cuda(tensor) and tensor.dtype is cls.dtype

    def __call__(cls, *args: Any, **_: Any) -> Any:
        """Make a tensor of sizes, from another tensor or from values, as the legacy constructors do."""
        if len(args) == 1 and isinstance(args[0], Tensor):
            return args[0].to(CUDA, cls.dtype)
        if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
            return torch.as_tensor(args[0], device="cpu").to(CUDA, cls.dtype)
        sizes = args[0] if len(args) == 1 and isinstance(args[0], torch.Size) else args
        return torch.empty(tuple(sizes) or (0,), dtype=cls.dtype, device=CUDA)


KINDS = {
    name: _Kind(name, (), {"dtype": dtype, "__module__": "torch.cuda"}) for name, dtype in _DTYPES.items()
}


def pretended(stack: ExitStack) -> None:
    """Install the types and the function that sets one as the default."""
    for name, kind in KINDS.items():
        stack.enter_context(replaced(torch.cuda, name, kind))
    stack.enter_context(replaced(clip_grad, "_group_tensors_by_device_and_dtype", grouped))
    index = Tensor.get_device
    stack.enter_context(replaced(Tensor, "get_device", lambda self, *_: 0 if on_cuda(self) else index(self)))
    set_default, made = torch.set_default_tensor_type, Tensor.__new__
    default: list[_Kind] = []

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        """Make a tensor of the default type, which `torch.Tensor(...)` means."""
        if cls is Tensor and default and not kwargs:
            return KINDS[_NAMES[torch.get_default_dtype()]](*args)
        return made(cls, *args, **kwargs)

    def set_default_tensor_type(kind: Any) -> None:
        found = _of_gpu(kind)
        default[:] = [] if found is None else [found]
        if default:
            Tensor.__new__ = staticmethod(new)  # type: ignore[method-assign]
        if found is None:
            torch.set_default_device("cpu")
            set_default(kind)
        else:
            torch.set_default_dtype(found.dtype)
            torch.set_default_device("cuda")

    stack.enter_context(replaced(torch, "set_default_tensor_type", set_default_tensor_type))


def grouped(lists: list[list[Tensor]], *_: Any) -> dict[Any, tuple[list[list[Tensor]], list[int]]]:
    """Group gradients by the device that they show; the original sees the meta device beneath the pretended one.

    Args:
        lists: The gradients to clip, in one list.
    """
    found: dict[Any, tuple[list[list[Tensor]], list[int]]] = {}
    for index, tensor in enumerate(lists[0]):
        members, indices = found.setdefault((tensor.device, tensor.dtype), ([[]], []))
        members[0].append(tensor)
        indices.append(index)
    return found


def type_of(tensor: Tensor, kind: Any = None, *_: Any, **__: Any) -> Any:
    """Act as `Tensor.type` for a GPU type or a tensor on the GPU.

    Args:
        tensor: The tensor.
        kind: The requested type; None to return the tensor's type.

    Returns:
        A tensor or a name; NotImplemented if PyTorch's own method applies.
    """
    if kind is None:
        return (
            f"torch.cuda.{_NAMES[tensor.dtype]}"
            if on_cuda(tensor) and tensor.dtype in _NAMES
            else NotImplemented
        )
    found = _of_gpu(kind)
    return NotImplemented if found is None else tensor.to(CUDA, found.dtype)


def _of_gpu(kind: Any) -> _Kind | None:
    """Return the type that a script names, if it is a GPU type."""
    if isinstance(kind, str) and kind.startswith("torch.cuda."):
        return KINDS.get(kind.rpartition(".")[2])
    return kind if isinstance(kind, _Kind) else None
