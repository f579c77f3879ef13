"""`DistributedDataParallel` for one rank: flat buckets for all gradients, which the real one takes, too.

Source: torch/csrc/distributed/c10d/reducer.cpp.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from gpumemnet.trace.tensors import CUDA
from gpumemnet.units import MIB

FIRST_BUCKET_BYTES = MIB
"""torch.distributed._DEFAULT_FIRST_BUCKET_BYTES."""
BUCKET_MIB = 25


class DataParallel(nn.Module):
    """As `torch.nn.parallel.DistributedDataParallel`, for one rank.

    Attributes:
        module: The user's model.
        buckets: One flat tensor for the gradients of each.
    """

    def __init__(
        self,
        module: nn.Module,
        device_ids: Any = None,
        *_: Any,
        bucket_cap_mb: float | None = None,
        gradient_as_bucket_view: bool = False,
        **__: Any,
    ) -> None:
        super().__init__()
        self.module = module
        self._moves = bool(device_ids)
        cap = BUCKET_MIB if bucket_cap_mb is None else bucket_cap_mb
        trained = [p for p in module.parameters() if p.requires_grad]
        shared = assigned(trained, int(cap * MIB))
        self.buckets = [_flat(bucket) for bucket in shared]
        if gradient_as_bucket_view:
            for bucket, flat in zip(shared, self.buckets):
                _grads_are_views(bucket, flat)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model; inputs on the CPU are moved, as the real one moves them where it was given a device."""
        if self._moves:
            args, kwargs = tree_map(lambda v: v.to(CUDA) if isinstance(v, Tensor) else v, (args, kwargs))
        return self.module(*args, **kwargs)

    def no_sync(self) -> Any:
        """Return what a script enters while it accumulates gradients."""
        return nullcontext()

    def join(self, *_: Any, **__: Any) -> Any:
        """Return what a script enters where ranks have different numbers of batches."""
        return nullcontext()


def assigned(parameters: list[nn.Parameter], cap_bytes: int) -> list[list[nn.Parameter]]:
    """Return which gradients share a bucket: in reverse, a small one first (compute_bucket_assignment_by_size).

    Args:
        parameters: Those that are trained, in the model's order.
        cap_bytes: A bucket is full once it holds this much.
    """
    found: list[list[nn.Parameter]] = []
    limits: dict[Any, int] = {}
    open_buckets: dict[Any, list[nn.Parameter]] = {}
    for parameter in reversed(parameters):
        kind = parameter.dtype
        bucket = open_buckets.setdefault(kind, [])
        bucket.append(parameter)
        if sum(p.numel() * p.element_size() for p in bucket) >= limits.get(kind, FIRST_BUCKET_BYTES):
            found.append(open_buckets.pop(kind))
            limits[kind] = cap_bytes
    return found + list(open_buckets.values())


def _flat(bucket: list[nn.Parameter]) -> Tensor:
    return torch.empty(sum(p.numel() for p in bucket), dtype=bucket[0].dtype, device=bucket[0].device)


def _grads_are_views(bucket: list[nn.Parameter], flat: Tensor) -> None:
    """Let each gradient take its place in the bucket once it is made, as the reducer's hook does."""
    start = 0
    for parameter in bucket:
        view = flat[start : start + parameter.numel()].view(parameter.shape)
        start += parameter.numel()
        parameter.register_post_accumulate_grad_hook(lambda each, view=view: setattr(each, "grad", view))
