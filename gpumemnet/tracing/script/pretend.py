"""Replace what the script uses of torch apart from tensors: GPU properties, loaders, files, compilers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn.parallel import comm
from torch.utils._pytree import tree_map

from gpumemnet.tracing.script import loaders
from gpumemnet.tracing.script.streams import Streams
from gpumemnet.tracing.trace.cuda.device import replaced
from gpumemnet.tracing.trace.cuda.tensors import CUDA
from gpumemnet.units import GIB, MIB

TOTAL_BYTES = 141 * GIB
"""Memory of the pretended GPU, for scripts that size themselves by it: that of an H200."""


@dataclass
class Settings:
    """Observed actions of the script.

    Attributes:
        warn: Warnings for the user.
        autocast: Whether autocast was switched on.
        checkpointing: Whether activations were recomputed.
        gpus: Number of ranks of its process group.
        nccl_alone: Whether that group has a single rank and uses NCCL.
        differ: Whether its batches differ in size.
        growth: Share by which a batch not read may exceed the largest that was.
        ratio: Largest batch size divided by the smallest, for the loader whose batches differ most.
        kinds: Kinds of doubt about the memory (`uncertainty.py`).
        emptied: Whether it emptied the allocator's cache while it trained.
        missed: Warnings if the script ends before its largest batches.
        came: Replacement of each of those warnings once a backward pass follows.
    """

    warn: dict[str, None] = field(default_factory=dict)
    autocast: bool = False
    checkpointing: bool = False
    gpus: int = 1
    nccl_alone: bool = False
    differ: bool = False
    growth: float = 0.0
    ratio: float = 1.0
    kinds: set[str] = field(default_factory=set)
    emptied: bool = False
    missed: dict[str, None] = field(default_factory=dict)
    came: dict[str, str] = field(default_factory=dict)

    def passed(self) -> None:
        """Record a backward pass: the batches before it count as trained on."""
        for missed, counted in self.came.items():
            self.missed.pop(missed, None)
            self.warn[counted] = None
        self.came.clear()


_PROPERTIES = SimpleNamespace(
    name="pretended GPU", major=9, minor=0, total_memory=TOTAL_BYTES, multi_processor_count=132, warp_size=32,
    is_integrated=False, is_multi_gpu_board=False, gcnArchName="", regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048, shared_memory_per_block=49152, L2_cache_size=50 * MIB, uuid="pretended",
)  # fmt: skip

_CUDA: dict[str, Any] = {
    "_lazy_init": lambda *_, **__: None,
    "init": lambda *_, **__: None,
    "is_initialized": lambda *_, **__: True,
    "get_device_properties": lambda *_, **__: _PROPERTIES,
    "mem_get_info": lambda *_, **__: (TOTAL_BYTES, TOTAL_BYTES),
    "manual_seed": lambda *_, **__: None,
    "manual_seed_all": lambda *_, **__: None,
    "seed": lambda *_, **__: None,
    "seed_all": lambda *_, **__: None,
    "initial_seed": lambda *_, **__: 0,
    "get_rng_state": lambda *_, **__: torch.zeros(16, dtype=torch.uint8),
    "get_rng_state_all": lambda *_, **__: [torch.zeros(16, dtype=torch.uint8)],
    "set_rng_state": lambda *_, **__: None,
    "set_rng_state_all": lambda *_, **__: None,
    "memory_stats": lambda *_, **__: {},
    "memory_summary": lambda *_, **__: "",
    "memory_snapshot": lambda *_, **__: [],
    "reset_max_memory_allocated": lambda *_, **__: None,
    "reset_accumulated_memory_stats": lambda *_, **__: None,
    "utilization": lambda *_, **__: 0,
    "ipc_collect": lambda *_, **__: None,
    "get_arch_list": lambda *_, **__: ["sm_90"],
    "device": lambda *_, **__: nullcontext(),
    "set_per_process_memory_fraction": lambda *_, **__: None,
    "_sleep": lambda *_, **__: None,
    "current_blas_handle": lambda *_, **__: 0,
}


def everything(
    stack: ExitStack, settings: Settings, streams: Streams, *, on_save: Callable[[Any, Any], bool]
) -> None:
    """Install all replacements permanently.

    Args:
        stack: Receives the contexts.
        settings: Receives what the script does.
        streams: Replacement of CUDA streams.
        on_save: Called with the saved object and its file or path; returns whether to write it.
    """

    def empty_cache() -> None:
        settings.emptied = settings.emptied or streams.trains

    for name, answer in {**_CUDA, **streams.of_cuda(), "empty_cache": empty_cache}.items():
        if hasattr(torch.cuda, name):
            stack.enter_context(replaced(torch.cuda, name, answer))
    _accelerator(stack, streams, empty_cache)
    loaders.pretended(settings)

    write = torch.save

    def saved(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if on_save(obj, f):
            write(obj, f, *args, **kwargs)

    torch.save = saved
    torch._assert = _assumed
    _threads(stack)

    enters = torch.autocast.__enter__

    def autocast(self: Any) -> Any:
        settings.autocast = settings.autocast or bool(self._enabled and self.device == "cuda")
        return enters(self)

    torch.autocast.__enter__ = autocast  # type: ignore[method-assign]
    recompute = torch.utils.checkpoint.checkpoint

    def checkpoint(*args: Any, **kwargs: Any) -> Any:
        settings.checkpointing = True
        return recompute(*args, **kwargs)

    torch.utils.checkpoint.checkpoint = checkpoint


def _threads(stack: ExitStack) -> None:
    """Make `nn.DataParallel` move inputs and gather gradients without C++ code, which CPU builds lack."""
    scatter = nn.DataParallel.scatter

    def moved(self: Any, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        inputs, kwargs = tree_map(lambda x: x.to(CUDA) if isinstance(x, Tensor) else x, (inputs, kwargs))
        return scatter(self, inputs, kwargs, device_ids)

    def gather(tensors: Any, dim: int = 0, destination: Any = None, *, out: Any = None) -> Any:
        return torch.cat(list(tensors), dim)

    def scatter_tensor(
        tensor: Any, devices: Any = None, chunk_sizes: Any = None, dim: int = 0, *_: Any, **__: Any
    ) -> Any:
        return tensor.chunk(len(devices), dim) if devices else (tensor,)

    stack.enter_context(replaced(nn.DataParallel, "scatter", moved))
    stack.enter_context(replaced(comm, "gather", gather))
    stack.enter_context(replaced(comm, "scatter", scatter_tensor))


def _assumed(condition: Any, message: str) -> None:
    """Make checks of values pass: GPU values do not exist (a torchvision detector checks its boxes)."""


def _accelerator(stack: ExitStack, streams: Streams, empty_cache: Callable[[], None]) -> None:
    """Replace `torch.accelerator`, which newer scripts and FSDP use instead of `torch.cuda`."""
    if hasattr(torch._C, "_get_accelerator"):
        stack.enter_context(replaced(torch._C, "_get_accelerator", lambda *_, **__: torch.device("cuda")))
    module = getattr(torch, "accelerator", None)
    answers: dict[str, Any] = {
        "is_available": lambda *_, **__: True,
        "device_count": lambda *_, **__: 1,
        "current_accelerator": lambda *_, **__: torch.device("cuda"),
        "current_device_index": lambda *_, **__: 0,
        "current_device_idx": lambda *_, **__: 0,
        "set_device_index": lambda *_, **__: None,
        "synchronize": lambda *_, **__: None,
        "empty_cache": empty_cache,
        **streams.of_accelerator(),
    }
    for name, answer in answers.items():
        if module is not None and hasattr(module, name):
            stack.enter_context(replaced(module, name, answer))
