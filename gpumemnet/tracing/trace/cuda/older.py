"""Differences between releases of PyTorch, from 2.1 on."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch._subclasses.fake_tensor as fake_tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_flatten

INIT_CONTEXT = "init_gpu_context" if hasattr(fake_tensor, "init_gpu_context") else "init_cuda_context"
"""Name of the attribute that requests a context from the driver when a fake tensor is made."""
META_HANDLERS: dict[Any, Any] = getattr(fake_tensor, "_DISPATCH_META_HANDLERS", {})
"""Handlers of a fake tensor mode that do not dispatch."""
POLLED = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 2)
"""Whether the end of a storage must be polled. In 2.1, Python's weak references to storages are not always
notified, and leave objects behind that crash the garbage collector."""


def watched(storage: torch.UntypedStorage, gone: Callable[[Any], None]) -> Any:
    """Return a weak reference to a storage; keep it while its end is of interest.

    Args:
        storage: The storage.
        gone: Called when it ends; if POLLED, call `expired()` of the returned object instead.
    """
    return StorageWeakRef(storage) if POLLED else weakref.ref(storage, gone)


def tree_leaves(tree: Any) -> list[Any]:
    """Return the leaves of nested lists, tuples and dictionaries."""
    return tree_flatten(tree)[0]


def grad_scaler(*, enabled: bool) -> Any:
    """Return a gradient scaler for the GPU."""
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cuda", enabled=enabled)
    return torch.cuda.amp.GradScaler(enabled=enabled)


def autocast_dtype() -> torch.dtype:
    """Return the type that autocast casts to on the GPU."""
    if hasattr(torch, "get_autocast_dtype"):
        return torch.get_autocast_dtype("cuda")
    return torch.get_autocast_gpu_dtype()


def autocast_on() -> bool:
    """Return whether autocast is on for the GPU; before 2.4 the query always means the GPU."""
    try:
        return bool(torch.is_autocast_enabled("cuda"))
    except TypeError:
        return bool(torch.is_autocast_enabled())


def cudnn_attention_on() -> bool:
    """Return whether cuDNN's attention may be used, which came with 2.5."""
    enabled = getattr(torch.backends.cuda, "cudnn_sdp_enabled", None)
    return hasattr(torch.ops.aten, "_scaled_dot_product_cudnn_attention") and bool(enabled and enabled())


def reduces_in_half() -> bool:
    """Return whether plain attention may sum in 16 bits; before 2.6 it always does."""
    allowed = getattr(torch.backends.cuda, "fp16_bf16_reduction_math_sdp_allowed", None)
    return True if allowed is None else bool(allowed())


def destroy(library: torch.library.Library) -> None:
    """Unregister a library's kernels; before 2.3 that happens when its last reference goes."""
    if hasattr(library, "_destroy"):
        library._destroy()


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's elements are contiguous in some order of its dimensions."""
    names = ("is_non_overlapping_and_dense_or_false", "is_non_overlapping_and_dense")
    newest = next(name for name in names if hasattr(torch._prims_common, name))
    return bool(getattr(torch._prims_common, newest)(tensor))
