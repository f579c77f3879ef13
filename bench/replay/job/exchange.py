"""Average the gradients of a training's replicas on several GPUs after a step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

import torch

BUCKET_BYTES = 25 << 20
"""Of gradients that are sent together: what DistributedDataParallel takes as its bucket_cap_mb
(https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html)."""

Replicas = Sequence[Sequence[torch.Tensor]]
"""The gradients of each replica, in one order."""


def one_by_one(gradients: Replicas) -> None:
    """Copy each gradient to the first GPU, take the mean there, copy it back.

    Args:
        gradients: Changed in place.
    """
    first = gradients[0]
    for others in gradients[1:]:
        torch._foreach_add_(
            first, [g.to(f.device, non_blocking=True) for g, f in zip(others, first, strict=True)]
        )
    torch._foreach_div_(first, len(gradients))
    for others in gradients[1:]:
        torch._foreach_copy_(
            others, [f.to(g.device, non_blocking=True) for g, f in zip(others, first, strict=True)]
        )


def in_buckets(gradients: Replicas) -> None:
    """Copy them as `one_by_one` does, many in a copy."""
    _bucketed(gradients, lambda flat: one_by_one([[one] for one in flat]))


def by_nccl(gradients: Replicas) -> None:
    """Add them up by NCCL, many in a call, as DistributedDataParallel does once its backward pass is over.

    Without multicast over NVLink: between two GPUs it saves nothing, and a fault in it would end what runs on the
    host's others. NCCL reads the variable as it begins, in the job's own environment.
    """
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    _bucketed(gradients, _all_reduced)


def _all_reduced(flat: Sequence[torch.Tensor]) -> None:
    torch.cuda.nccl.all_reduce(flat)
    for one in flat:
        one.div_(len(flat))


def _bucketed(gradients: Replicas, agree: Callable[[Sequence[torch.Tensor]], None]) -> None:
    for which in buckets(gradients[0]):
        flat = [torch.cat([replica[k].flatten() for k in which]) for replica in gradients]
        agree(flat)
        for replica, one in zip(gradients, flat, strict=True):
            parts = one.split([replica[k].numel() for k in which])
            torch._foreach_copy_(
                [replica[k] for k in which],
                [part.view_as(replica[k]) for part, k in zip(parts, which, strict=True)],
            )


def buckets(gradients: Sequence[torch.Tensor]) -> Iterator[list[int]]:
    """Yield which gradients are sent together: the last first, as a backward pass makes them, of one type each.

    Args:
        gradients: Of one replica.
    """
    filled: dict[torch.dtype, tuple[list[int], int]] = {}
    for k in reversed(range(len(gradients))):
        which, before = filled.pop(gradients[k].dtype, ([], 0))
        filled_bytes = before + gradients[k].nbytes
        if which and filled_bytes > BUCKET_BYTES:
            yield which
            which, filled_bytes = [], gradients[k].nbytes
        filled[gradients[k].dtype] = ([*which, k], filled_bytes)
    yield from (which for which, _ in filled.values())


EXCHANGES = {"copies": one_by_one, "buckets": in_buckets, "nccl": by_nccl}
