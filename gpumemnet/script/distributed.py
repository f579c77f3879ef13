"""One rank of a data-parallel script, where there are neither other ranks nor NCCL.

`torch.distributed` answers as for the rank and the number of ranks that the launcher or the script names; what is sent
goes nowhere. `DistributedDataParallel` takes what the real one takes of PyTorch's allocator: flat buckets for all
gradients (torch/csrc/distributed/c10d/reducer.cpp). NCCL's own buffers are the process' base, and are not known here.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, nullcontext
from typing import Any

import torch
import torch.distributed
import torch.nn.parallel
import torch.nn.parallel.distributed
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from gpumemnet.errors import TraceError
from gpumemnet.script.pretend import Said
from gpumemnet.trace.device import CUDA, on_cuda, replaced
from gpumemnet.units import MIB

FIRST_BUCKET_BYTES = MIB
"""torch.distributed._DEFAULT_FIRST_BUCKET_BYTES."""
BUCKET_MIB = 25
NCCL = "the buffers of NCCL are not in the estimate; they take some hundred MiB of each GPU"
SHARDED = "it shards its parameters (FSDP), which is not traced: give a summary, or memory= for one GPU"


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


class _Sent:
    """What came of an operation that was not waited for."""

    def wait(self, *_: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


def _sharded(*_: Any, **__: Any) -> None:
    raise TraceError(SHARDED)


class Ranks:
    """What `torch.distributed` is asked.

    Attributes:
        rank: Of this process.
        size: How many there are.
        begun: A group was made.
    """

    def __init__(self, said: Said) -> None:
        self.rank, self.size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        self.begun = False
        self._said = said

    def init_process_group(self, *_: Any, rank: int = -1, world_size: int = -1, **__: Any) -> None:
        """Make the group; other ranks than the first leave, as one is all that is traced.

        Args:
            rank: Of this process; -1 where the launcher's variable says it.
            world_size: How many ranks there are; -1 likewise.
        """
        self.rank = rank if rank >= 0 else self.rank
        self.size = self._said.gpus = world_size if world_size > 0 else self.size
        self.begun = True
        if self.rank > 0:
            os._exit(0)
        self._said.warn[NCCL] = None
        module = sys.modules.get("torch.distributed.fsdp")
        if module is not None:
            module.FullyShardedDataParallel.__init__ = _sharded

    def end(self, *_: Any) -> None:
        """Leave the group."""
        self.begun = False

    def gathered(self, into: Any, value: Any, *_: Any, **__: Any) -> _Sent:
        """Fill a list with what every rank would have sent: the same.

        Args:
            into: One place for each rank; tensors on the GPU are there already.
            value: What this rank sends.
        """
        for at in range(len(into)):
            if isinstance(into[at], Tensor) and on_cuda(into[at]):
                continue
            into[at] = value
        return _Sent()


def pretended(stack: ExitStack, said: Said) -> None:
    """Put all of it in place, for good.

    Args:
        stack: Holds it.
        said: Is told what the script does.
    """
    ranks = Ranks(said)

    answers: dict[str, Any] = {
        "init_process_group": ranks.init_process_group,
        "destroy_process_group": ranks.end,
        "is_initialized": lambda: ranks.begun,
        "is_nccl_available": lambda: True,
        "get_rank": lambda *_: ranks.rank,
        "get_world_size": lambda *_: ranks.size,
        "get_backend": lambda *_: "nccl",
        "all_gather": ranks.gathered,
        "all_gather_object": ranks.gathered,
        **dict.fromkeys(
            (
                *("new_group", "all_reduce", "reduce", "broadcast", "broadcast_object_list", "barrier"),
                *("monitored_barrier", "all_gather_into_tensor", "reduce_scatter_tensor"),
            ),
            lambda *_, **__: _Sent(),
        ),
    }
    for name, answer in answers.items():
        if hasattr(torch.distributed, name):
            stack.enter_context(replaced(torch.distributed, name, answer))
    for module in (torch.nn.parallel, torch.nn.parallel.distributed):
        stack.enter_context(replaced(module, "DistributedDataParallel", DataParallel))
    convert = staticmethod(lambda module, *_: module)
    stack.enter_context(replaced(nn.SyncBatchNorm, "convert_sync_batchnorm", convert))
