"""One rank of a distributed script, without other ranks and without NCCL.

The group is PyTorch's, with its backend "fake": it returns the rank and the number of ranks that the launcher or script
sets, and discards what is sent. NCCL's internal memory is no tensor: the estimate adds it to the process' base
(`gpumemnet.estimators.base`), as measured for one group of several ranks. `data_parallel` replaces DDP; FSDP is
PyTorch's code, with the additions of `sharded`.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed
import torch.distributed.distributed_c10d
import torch.nn.parallel
import torch.nn.parallel.distributed
from torch import Tensor, nn

from gpumemnet.tracing.script.libraries import sharded
from gpumemnet.tracing.script.libraries.data_parallel import DistributedDataParallel
from gpumemnet.tracing.script.pretend import Settings
from gpumemnet.tracing.trace.cuda.device import replaced
from gpumemnet.tracing.trace.cuda.tensors import on_cuda
from gpumemnet.tracing.trace.recording.recorder import Recorder

FURTHER = "NCCL is counted for one group of ranks; what it uses for further ones was not measured"
SENT = (
    *("all_reduce", "reduce", "broadcast", "broadcast_object_list", "barrier", "monitored_barrier"),
    *("all_gather_into_tensor", "all_gather_single", "_all_gather_base"),
    *("reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single", "_reduce_scatter_base"),
    *("all_to_all", "all_to_all_single", "_broadcast_coalesced", "_verify_params_across_processes"),
)
"""Operations that fill existing tensors, which hold no values on the GPU."""
_OF_GROUPS = ("group_desc", "use_local_synchronization")


class _Sent:
    """Result of an asynchronous operation."""

    def wait(self, *_: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


class Ranks:
    """Makes groups whose other ranks do not exist."""

    def __init__(self, stack: ExitStack, settings: Settings, recorder: Recorder) -> None:
        self._stack, self._settings, self._recorder = stack, settings, recorder
        self._begin, self._new_group = torch.distributed.init_process_group, torch.distributed.new_group

    def init_process_group(
        self, backend: Any = None, *_: Any, rank: int = -1, world_size: int = -1, **__: Any
    ) -> None:
        """Make the group. Ranks other than the first exit, as only one is traced.

        Args:
            backend: The requested backend; all but gloo are treated as NCCL.
            rank: Rank of this process; -1 to use the launcher's variable.
            world_size: Number of ranks; -1 likewise.
        """
        rank = rank if rank >= 0 else int(os.environ.get("RANK", 0))
        if rank > 0:
            os._exit(0)
        self._settings.gpus = world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", 1))
        self._settings.nccl_alone = self._settings.gpus == 1 and backend != "gloo"
        from torch.testing._internal.distributed.fake_pg import FakeStore  # registers the backend

        self._begin("fake", rank=rank, world_size=self._settings.gpus, store=FakeStore())
        sharded.pretended(self._stack, self._recorder)

    def new_group(
        self, ranks: Any = None, timeout: Any = None, backend: Any = None, *_: Any, **how: Any
    ) -> Any:
        """Make another group.

        Args:
            ranks: Its members; None for all.
            timeout: Ignored.
            backend: The requested backend; all but gloo are treated as NCCL.
            **how: As for torch.distributed.
        """
        if backend != "gloo":
            self._settings.warn[FURTHER] = None
        return self._new_group(ranks, backend="fake", **{k: v for k, v in how.items() if k in _OF_GROUPS})


def _gathered(into: Any, value: Any) -> _Sent:
    """Fill a list with one entry per rank; every rank would have sent the same."""
    for at in range(len(into)):
        if isinstance(into[at], Tensor) and on_cuda(into[at]):
            continue  # it exists
        into[at] = value
    return _Sent()


def counted(stack: ExitStack) -> None:
    """Report one GPU for each rank that a launcher starts on this node: scripts refuse to start with fewer."""
    gpus = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    for module in (torch.cuda, getattr(torch, "accelerator", None)):
        if hasattr(module, "device_count"):
            stack.enter_context(replaced(module, "device_count", lambda *_, **__: gpus))


def pretended(stack: ExitStack, settings: Settings, recorder: Recorder) -> None:
    """Install the replacements permanently.

    Args:
        stack: Receives the contexts.
        settings: Receives what the script does.
        recorder: Receives gathered parameters.
    """
    ranks = Ranks(stack, settings, recorder)
    answers: dict[str, Any] = {
        "init_process_group": ranks.init_process_group,
        "new_group": ranks.new_group,
        "is_nccl_available": lambda: True,
        "get_backend": lambda *_, **__: "nccl",
        "all_gather": lambda tensor_list, tensor, *_, **__: _gathered(tensor_list, tensor),
        "all_gather_object": lambda object_list, obj, *_, **__: _gathered(object_list, obj),
        **dict.fromkeys(SENT, lambda *_, **__: _Sent()),
    }
    meshes = getattr(torch.distributed, "device_mesh", None)  # has imported some by name
    for module in (torch.distributed, torch.distributed.distributed_c10d, meshes):
        for name, answer in answers.items():
            if hasattr(module, name):
                stack.enter_context(replaced(module, name, answer))
    for module in (torch.nn.parallel, torch.nn.parallel.distributed):
        stack.enter_context(replaced(module, "DistributedDataParallel", DistributedDataParallel))
    convert = staticmethod(lambda module, *_, **__: module)
    stack.enter_context(replaced(nn.SyncBatchNorm, "convert_sync_batchnorm", convert))
