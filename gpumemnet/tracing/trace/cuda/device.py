"""A pretended CUDA device: fake tensors that report it as their device, on any build of PyTorch.

`FakeTensorMode` makes tensors without storage that report `device="cuda:0"`. Training with them without a GPU has two
obstacles. PyTorch's C++ asks the CUDA driver about the tensors' device (streams for backward, device guards), and its
Python asks `torch.cuda`. So C++ sees "meta", which it handles without a driver, while Python code sees "cuda:0". The
few C++ decisions that depend on the device are made in `composites` and `autocast`, as PyTorch makes them for CUDA.
docs/estimator/traces.md names the releases of PyTorch that were tried, including builds with CUDA without a driver;
`older` holds their differences.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch._subclasses.fake_tensor as fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim.optimizer import _foreach_supported_types

from gpumemnet.tracing.trace.cuda import autocast, composites
from gpumemnet.tracing.trace.cuda.calls import CudaCalls
from gpumemnet.tracing.trace.cuda.generators import Generator
from gpumemnet.tracing.trace.cuda.older import INIT_CONTEXT, META_HANDLERS
from gpumemnet.tracing.trace.cuda.tensors import CUDA, META

_NOTHING: Mapping[str, Any] = {}
_DEVICE_OP = torch.ops.prim.device.default


def _no_inference(enabled: bool = True) -> Any:
    """Replace inference mode by no_grad: same memory, but inference mode passes composite operators undivided."""
    return torch.no_grad() if enabled else torch.enable_grad()


def _device_for_cpp(args: Any) -> torch.device:
    tensor = args[0]
    if tensor.fake_mode.in_kernel_invocation or tensor.fake_device.type == "cuda":
        return META
    device: torch.device = tensor.fake_device
    return device


class CudaFakeMode(FakeTensorMode):
    """Fake tensor mode; C++ sees "meta", so tensors that C++ makes there are put on the pretended device."""

    avoid_device_init = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] = _NOTHING
    ) -> Any:
        if func is _DEVICE_OP:
            return _device_for_cpp(args)
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "meta":
            kwargs = {**kwargs, "device": CUDA}
        return super().__torch_dispatch__(func, types, args, kwargs)


_CUDA_ANSWERS: dict[str, Callable[..., Any]] = {
    "_lazy_init": lambda *_, **__: None,
    "is_available": lambda *_, **__: True,
    "device_count": lambda *_, **__: 1,
    "current_device": lambda *_, **__: 0,
    "get_device_name": lambda *_, **__: "traced",
    "get_device_capability": lambda *_, **__: (9, 0),
    "is_current_stream_capturing": lambda *_, **__: False,
    "is_bf16_supported": lambda *_, **__: True,
    "synchronize": lambda *_, **__: None,
    "reset_peak_memory_stats": lambda *_, **__: None,
    "memory_allocated": lambda *_, **__: 0,
    "max_memory_allocated": lambda *_, **__: 0,
    "memory_reserved": lambda *_, **__: 0,
    "max_memory_reserved": lambda *_, **__: 0,
    "set_device": lambda *_, **__: None,
}


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute temporarily.

    Args:
        owner: Module or class.
        name: Name of the attribute.
        value: The temporary value.
    """
    missing = object()
    before = owner.__dict__.get(name, missing) if isinstance(owner, type) else getattr(owner, name, missing)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


@contextmanager
def pretend_cuda_calls() -> Iterator[None]:
    """Make Python code see one GPU; nothing is moved to it yet."""
    with ExitStack() as stack:
        for name, answer in _CUDA_ANSWERS.items():
            stack.enter_context(replaced(torch.cuda, name, answer))
        stack.enter_context(replaced(torch, "Generator", Generator))
        yield


@contextmanager
def pretended_cuda(kind: type[CudaFakeMode] = CudaFakeMode) -> Iterator[CudaFakeMode]:
    """Make fake CUDA tensors work on this machine, with or without a GPU.

    Yields:
        The fake tensor mode, already entered.
    """
    original = FakeTensor.__torch_dispatch__

    def dispatch(cls: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE_OP:
            return _device_for_cpp(args)
        return original(func, types, args, kwargs or {})

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        # Failures are reported in one line; the log would print a traceback first.
        stack.enter_context(replaced(logging.getLogger(fake_tensor.__name__), "disabled", True))
        stack.enter_context(replaced(FakeTensor, "__torch_dispatch__", classmethod(dispatch)))
        if _DEVICE_OP in META_HANDLERS:
            stack.callback(META_HANDLERS.__setitem__, _DEVICE_OP, META_HANDLERS[_DEVICE_OP])
            META_HANDLERS[_DEVICE_OP] = _device_for_cpp
        # A build with CUDA would request a context: a login node has no driver, a full GPU no free memory.
        stack.enter_context(replaced(fake_tensor, INIT_CONTEXT, lambda *_: None))
        # Optimizers use their multi-tensor path only for plain parameters on CUDA; these count as such.
        _foreach_supported_types.append(FakeTensor)
        stack.callback(_foreach_supported_types.remove, FakeTensor)
        stack.enter_context(pretend_cuda_calls())
        stack.enter_context(replaced(torch._C, "_InferenceMode", _no_inference))
        # Transformers makes masks during what it takes for a compiler's tracing; a plain run has none.
        library = sys.modules.get("transformers.utils.import_utils")
        if hasattr(library, "is_fake_tensor"):
            stack.enter_context(replaced(library, "is_fake_tensor", lambda tensor: False))
        stack.enter_context(composites.registered())
        stack.enter_context(autocast.registered())
        mode = kind(allow_non_fake_inputs=True, allow_fallback_kernels=False)
        stack.enter_context(mode)
        stack.enter_context(CudaCalls())
        yield mode
