"""Memory of FSDP (FullyShardedDataParallel or fully_shard) beyond operators; its code is PyTorch's.

FSDP frees gathered parameters by shrinking their storage, and has PyTorch compute shapes of whole tensors without
memory. FullyShardedDataParallel gathers on a separate stream and splits the gathered tensor there. Autograd runs a
backward on the stream of its forward, so the whole gradient comes from that stream's memory.
"""

from __future__ import annotations

import gc
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from gpumemnet.tracing.trace.cuda.device import replaced
from gpumemnet.tracing.trace.recording.recorder import Recorder

_SHAPES = ("_propagate_tensor_meta_non_cached", "_propagate_tensor_meta")
"""Methods that compute shapes without memory; releases differ, and the first one found calls no other."""


def pretended(stack: ExitStack, recorder: Recorder) -> None:
    """Install the replacements permanently.

    Args:
        stack: Receives the contexts.
        recorder: Receives storages that change their size, but not computed shapes.
    """
    resize = torch.UntypedStorage.resize_

    def resized(storage: Any, n_bytes: int) -> Any:
        result = resize(storage, n_bytes)
        recorder.resized(storage)
        return result

    stack.enter_context(replaced(torch.UntypedStorage, "resize_", resized))
    split = torch.split

    def parted(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        parts = split(tensor, *args, **kwargs)
        node = parts[0].grad_fn if parts else None
        if recorder.pool and node is not None:
            _backward_on(node, recorder)
        return parts

    stack.enter_context(replaced(torch, "split", parted))
    try:
        from torch.distributed.tensor import _dispatch, _random
        from torch.distributed.tensor._sharding_prop import ShardingPropagator
    except ImportError:  # before 2.5 it was elsewhere
        return
    # The random numbers for sharded weights do not matter, and there is no GPU to return its random state.
    for owner in (_dispatch, _random):
        if hasattr(owner, "is_rng_supported_mesh"):
            stack.enter_context(replaced(owner, "is_rng_supported_mesh", lambda *_: False))
    name = next((each for each in _SHAPES if hasattr(ShardingPropagator, each)), None)
    if name is not None:
        work_out = getattr(ShardingPropagator, name)

        def aside(*args: Any, **kwargs: Any) -> Any:
            with recorder.aside():
                return work_out(*args, **kwargs)

        stack.enter_context(replaced(ShardingPropagator, name, aside))


def _backward_on(node: Any, recorder: Recorder) -> None:
    """Make a node of autograd allocate from the stream that is current now."""
    pool, before = recorder.pool, []

    def enter(*_: Any) -> None:
        before.append(recorder.pool)
        recorder.pool = pool

    def leave(*_: Any) -> None:
        recorder.pool = before.pop()

    node.register_prehook(enter)
    node.register_hook(leave)


def is_sharded(model: nn.Module) -> bool:
    """Return whether a model's parameters are divided among the ranks."""
    names = {base.__name__ for module in model.modules() for base in type(module).__mro__}
    return not names.isdisjoint(("FullyShardedDataParallel", "FSDPModule"))


def computes_in_half() -> bool:
    """Return whether FSDP gathers parameters in 16 bits. Only its policies say so; no lasting tensor does."""
    policies = [p for p in gc.get_objects() if type(p).__name__ in ("MixedPrecision", "MixedPrecisionPolicy")]
    return any(p.param_dtype in (torch.float16, torch.bfloat16) for p in policies)
