"""`DistributedDataParallel` for one rank: flat buckets for all gradients, as in the original.

Source: torch/csrc/distributed/c10d/reducer.cpp and comm.cpp (broadcast_coalesced).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from gpumemnet.tracing.trace.cuda.tensors import CUDA
from gpumemnet.units import MIB

FIRST_BUCKET_BYTES = MIB
"""torch.distributed._DEFAULT_FIRST_BUCKET_BYTES."""
BUCKET_MIB = 25
SENT_BYTES = 250 * MIB
"""Weights and buffers that the first rank sends to the others in one flat copy; two copies are in flight at a time."""


class DistributedDataParallel(nn.Module):
    """Replacement for `torch.nn.parallel.DistributedDataParallel`, for one rank.

    Attributes:
        module: The user's model.
        buckets: One flat gradient tensor per bucket.
    """

    def __init__(
        self,
        module: nn.Module,
        device_ids: Any = None,
        *_: Any,
        broadcast_buffers: bool = True,
        bucket_cap_mb: float | None = None,
        gradient_as_bucket_view: bool = False,
        **__: Any,
    ) -> None:
        super().__init__()
        self.module = module
        self._moves = bool(device_ids)
        self._sends_buffers = broadcast_buffers
        cap = BUCKET_MIB if bucket_cap_mb is None else bucket_cap_mb
        trained = [p for p in module.parameters() if p.requires_grad]
        _send([*module.parameters(), *module.buffers()])
        shared = assigned(reversed(trained), (FIRST_BUCKET_BYTES, int(cap * MIB)))
        self.buckets = [_flat(bucket) for bucket in shared]
        if gradient_as_bucket_view:
            for bucket, flat in zip(shared, self.buckets):
                _grads_are_views(bucket, flat)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model; move inputs from the CPU if the original was given a device, as it does."""
        if self._moves:
            args, kwargs = tree_map(lambda v: v.to(CUDA) if isinstance(v, Tensor) else v, (args, kwargs))
        if self._sends_buffers and self.training:
            _send([*self.module.buffers()])
        return self.module(*args, **kwargs)

    def no_sync(self) -> Any:
        """Return the context for gradient accumulation."""
        return nullcontext()

    def join(self, *_: Any, **__: Any) -> Any:
        """Return the context for ranks with different numbers of batches."""
        return nullcontext()


def assigned(tensors: Iterable[Tensor], limits: Sequence[int]) -> list[list[Any]]:
    """Assign tensors to buckets (compute_bucket_assignment_by_size).

    Args:
        tensors: In the order in which they fill buckets; each type is separate.
        limits: Bytes at which a type's first bucket is full, its second, and so on; the last limit applies to the rest.
    """
    found: list[list[Any]] = []
    full: dict[Any, int] = {}
    open_buckets: dict[Any, list[Any]] = {}
    for tensor in tensors:
        kind = tensor.dtype
        bucket = open_buckets.setdefault(kind, [])
        bucket.append(tensor)
        at = full.get(kind, 0)
        if sum(t.numel() * t.element_size() for t in bucket) >= limits[min(at, len(limits) - 1)]:
            found.append(open_buckets.pop(kind))
            full[kind] = at + 1
    return found + list(open_buckets.values())


def _send(tensors: Iterable[Tensor]) -> None:
    """Allocate what sending needs: a flat copy of each bucket."""
    on_the_way: deque[Tensor] = deque(maxlen=2)
    for bucket in assigned(tensors, (SENT_BYTES,)):
        on_the_way.append(_flat(bucket))


def _flat(bucket: list[Any]) -> Tensor:
    return torch.empty(sum(p.numel() for p in bucket), dtype=bucket[0].dtype, device=bucket[0].device)


def _grads_are_views(bucket: list[nn.Parameter], flat: Tensor) -> None:
    """Make each gradient a view of its bucket once it is computed, as the reducer's hook does."""
    start = 0
    for parameter in bucket:
        view = flat[start : start + parameter.numel()].view(parameter.shape)
        start += parameter.numel()
        parameter.register_post_accumulate_grad_hook(lambda each, view=view: setattr(each, "grad", view))
