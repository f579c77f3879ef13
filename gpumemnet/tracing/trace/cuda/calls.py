"""Replace the Python calls that move a tensor to the pretended GPU or query its device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from gpumemnet.tracing.trace.cuda.generators import without
from gpumemnet.tracing.trace.cuda.tensors import CUDA, META, local, on_cuda


class CudaCalls(TorchFunctionMode):
    """Mode that handles Python calls that move a tensor to the GPU or query whether it is there."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = without(kwargs or {})
        handler = _CALLS.get(func)
        if handler is not None:
            return handler(*args, **kwargs)
        return func(*args, **kwargs)


def _to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    other = args[0] if args else kwargs.get("other")
    if isinstance(other, torch.Tensor):
        device, dtype, memory_format = other.device, other.dtype, kwargs.get("memory_format")
    else:
        copy = kwargs.pop("copy", False)
        args = tuple(a for i, a in enumerate(args) if not (isinstance(a, bool) and i >= 2))
        device, dtype, _, memory_format = torch._C._nn._parse_to(*args, **kwargs)
        if copy:
            tensor = tensor.clone()
    return _moved(tensor, device, dtype, memory_format)


def _moved(
    tensor: torch.Tensor,
    device: torch.device | None,
    dtype: torch.dtype | None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    target = None if device is None else CUDA if device.type == "cuda" else device
    same = target is None or target == tensor.device
    more = {} if memory_format is None else {"memory_format": memory_format}
    dtype = tensor.dtype if dtype is None else dtype
    if target == META and on_cuda(tensor):  # for C++ it is there already
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device=META)
    if same and dtype == tensor.dtype and memory_format is None:
        return tensor
    if same:
        return _plain_to(tensor, dtype, **more)
    return _plain_to(tensor, target, dtype, **more)


def _plain_to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    with torch._C.DisableTorchFunctionSubclass():
        return torch.Tensor.to(tensor, *args, **kwargs)


def _cuda(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return _moved(tensor, CUDA, None)


def _named(kind: Any = None, *args: Any, **kwargs: Any) -> torch.device:
    """Return the device; a number alone names a GPU, which C++ would look for."""
    return (
        CUDA if isinstance(kind, int) else torch.device(*(() if kind is None else (kind,)), *args, **kwargs)
    )


_NUMBERS = frozenset(("data", "obj"))
"""Names of the first argument of `tensor` and `as_tensor`, and of `asarray`."""


def _made(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a function that makes a tensor of numbers: on the CPU first, as before 2.2 a GPU is queried."""

    def call(*args: Any, device: Any = None, requires_grad: bool = False, **kwargs: Any) -> torch.Tensor:
        where = None if device is None else _named(device)
        if where is not None and where.type != "cuda":
            kwargs["device"] = where
        for name in _NUMBERS & kwargs.keys():
            kwargs[name] = _read(kwargs[name])
        made = make(*map(_read, args[:1]), *args[1:], **kwargs)
        if where is not None and where.type == "cuda":
            made = _moved(made, CUDA, None)
        return made.requires_grad_() if requires_grad else made

    return call


def _read(data: Any) -> Any:
    """Return numbers for the GPU tensors in a list: C++ would ask the driver for each of them."""
    if not isinstance(data, (list, tuple)):
        return data
    return [_number(each) if isinstance(each, torch.Tensor) else _read(each) for each in data]


def _number(tensor: torch.Tensor) -> Any:
    return tensor.tolist() if on_cuda(tensor) else tensor


def _new(
    tensor: torch.Tensor, data: Any, *, dtype: Any = None, device: Any = None, **kwargs: Any
) -> torch.Tensor:
    dtype = tensor.dtype if dtype is None else dtype
    return _made(torch.tensor)(
        data, dtype=dtype, device=tensor.device if device is None else device, **kwargs
    )


def _device(tensor: torch.Tensor) -> torch.device:
    """Return the device; a sharded tensor (FSDP's parameters) is on its part's device, which C++ calls "meta"."""
    return local(tensor).device


_CALLS: dict[Any, Callable[..., Any]] = {
    torch.device: _named,
    torch.tensor: _made(torch.tensor),
    torch.as_tensor: _made(torch.as_tensor),
    torch.asarray: _made(torch.asarray),
    torch.Tensor.new_tensor: _new,
    torch.Tensor.device.__get__: _device,
    torch.Tensor.to: _to,
    torch.Tensor.cuda: _cuda,
    torch.Tensor.record_stream: lambda *_, **__: None,
    torch.Tensor.pin_memory: lambda tensor, *_: tensor,
    torch.Tensor.is_cuda.__get__: lambda tensor: tensor.device.type == "cuda",  # type: ignore[attr-defined]
    torch.Tensor.get_device: lambda tensor: 0 if tensor.device.type == "cuda" else -1,
}
