"""Build the user's model on the CPU without filling its weights, then move it to the pretended GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from gpumemnet.tracing.trace.cuda.device import pretend_cuda_calls, replaced
from gpumemnet.tracing.trace.cuda.older import is_dense
from gpumemnet.tracing.trace.cuda.tensors import CUDA

LARGE_ELEMENTS = 1 << 16
"""Larger tensors stay unfilled: their values do not matter, and unwritten pages take no memory."""

_FILLS = frozenset(
    (
        Tensor.normal_,
        Tensor.uniform_,
        Tensor.zero_,
        Tensor.fill_,
        Tensor.random_,
        Tensor.bernoulli_,
        Tensor.exponential_,
        Tensor.log_normal_,
        Tensor.cauchy_,
        Tensor.geometric_,
        Tensor.clamp_,
        Tensor.erfinv_,
        Tensor.mul_,
        Tensor.add_,
        Tensor.sub_,
        Tensor.div_,
        Tensor.copy_,
    )
)
_FACTORIES = frozenset((torch.randn, torch.rand, torch.zeros, torch.ones, torch.full))
_INITS = tuple(name for name in dir(nn.init) if name.endswith("_") and not name.startswith("_"))


class _Unfilled(TorchFunctionMode):
    """Skips the filling of large tensors, and keeps tensors requested on the GPU on the CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is Tensor.cuda or func is Tensor.pin_memory:
            return args[0]
        if func is Tensor.to:
            args = tuple(torch.device("cpu") if _names_cuda(a) else a for a in args)
        if _names_cuda(kwargs.get("device")):
            kwargs["device"] = torch.device("cpu")
        if args and isinstance(args[0], Tensor) and args[0].numel() > LARGE_ELEMENTS:
            if func in _FILLS or getattr(func, "__module__", "") == nn.init.__name__:
                return args[0]
            if func is Tensor.clone:
                return torch.empty_like(args[0])
        if func in _FACTORIES:
            return _factory(func, args, kwargs)
        return func(*args, **kwargs)


def _names_cuda(value: Any) -> bool:
    if isinstance(value, str):
        return value.startswith("cuda")
    return isinstance(value, torch.device) and value.type == "cuda"


def _factory(func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
    size = kwargs.get("size", args[0] if args and not isinstance(args[0], int) else args)
    n = 1
    for length in size:
        n *= int(length)
    if n <= LARGE_ELEMENTS:
        filled: Tensor = func(*args, **kwargs)
        return filled
    plain = {k: v for k, v in kwargs.items() if k in ("dtype", "device", "requires_grad")}
    if func is torch.full and plain.get("dtype") is None:
        plain["dtype"] = torch.tensor(kwargs.get("fill_value", args[1] if len(args) > 1 else 0.0)).dtype
    return torch.empty(tuple(size), **plain)


@contextmanager
def unfilled() -> Iterator[None]:
    """Context for building models: no weights are filled and nothing goes to a GPU."""
    with ExitStack() as stack:
        stack.enter_context(pretend_cuda_calls())
        stack.enter_context(skip_inits())
        stack.enter_context(_Unfilled())
        yield


@contextmanager
def skip_inits() -> Iterator[None]:
    """Make `torch.nn.init` leave large tensors unchanged."""
    with ExitStack() as stack:
        for name in _INITS:
            stack.enter_context(replaced(nn.init, name, _skipped(getattr(nn.init, name))))
        yield


def _skipped(init: Any) -> Any:
    def fill(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if tensor.numel() > LARGE_ELEMENTS:
            return tensor
        result: Tensor = init(tensor, *args, **kwargs)
        return result

    return fill


def move_to_cuda(model: nn.Module, dtype: torch.dtype | None) -> None:
    """Replace parameters and buffers by ones on the pretended GPU, in the order of `model.to()`.

    Args:
        model: On the CPU; changed in place.
        dtype: Type to cast floating point values to; None to keep their type.
    """
    moved: dict[int, Tensor] = {}
    for module in _depth_first(model):
        for group in (module._parameters, module._buffers):
            for name, tensor in group.items():
                if tensor is not None:
                    if id(tensor) not in moved:
                        moved[id(tensor)] = _on_cuda(tensor, dtype)
                    group[name] = moved[id(tensor)]  # type: ignore[assignment]
        if isinstance(module, nn.RNNBase):
            module._flat_weights = [getattr(module, name) for name in module._flat_weights_names]


def _on_cuda(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    wanted = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
    if is_dense(tensor):
        new = torch.empty_strided(tensor.shape, tensor.stride(), dtype=wanted, device=CUDA)
    else:
        new = torch.empty(tensor.shape, dtype=wanted, device=CUDA)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(new, requires_grad=tensor.requires_grad)
    return new.requires_grad_(tensor.requires_grad)


def _depth_first(model: nn.Module) -> Iterator[nn.Module]:
    """Yield children before parents, as `nn.Module._apply` does."""
    seen: set[int] = set()

    def walk(module: nn.Module) -> Iterator[nn.Module]:
        if id(module) in seen:
            return
        seen.add(id(module))
        for child in module.children():
            yield from walk(child)
        yield module

    return walk(model)
