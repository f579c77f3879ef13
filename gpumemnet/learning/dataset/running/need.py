"""Estimate a configuration's need roughly, without a GPU, only to decide which runs may be concurrent."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gpumemnet.learning.dataset.catalogue import workload
from gpumemnet.learning.dataset.config import Configuration
from gpumemnet.learning.dataset.generate import STATE_COPIES
from gpumemnet.learning.dataset.models import recurrent
from gpumemnet.learning.dataset.workload import Workload, loss_of, make_inputs, make_tensor
from gpumemnet.names import Precision
from gpumemnet.units import GIB, MIB

BASE_BYTES = 800 * MIB
"""Context and libraries of a training process on an H200, rounded up (about 750 MiB seen)."""

UNKNOWN_REAL_BYTES = 30 * GIB
"""Kept free for a real model that cannot be traced; the held-out batch sizes need less ..."""
UNKNOWN_WEIGHTS_BYTES, UNKNOWN_TOKEN_BYTES = 4 * GIB, 2 * MIB
"""... and, for a text model, at most this much, and this much per token: 24 layers of width 1,024."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A rough need.

    Attributes:
        total_bytes: Expected process memory at the peak.
        params: Number of parameters.
    """

    total_bytes: int
    params: int


def estimate_need(config: Configuration) -> Need:
    """Run one forward pass on the meta device and sum the memory for backward."""
    if config.family != "real":
        return _traced_need(config)
    try:
        return _traced_need(config)
    except (RuntimeError, NotImplementedError, TypeError):
        # Some real models read values while they are built or run, which the meta device lacks.
        tokens = config.batch_size * (config.seq_len or 0)
        by_tokens = UNKNOWN_WEIGHTS_BYTES + tokens * UNKNOWN_TOKEN_BYTES
        return Need(
            total_bytes=min(by_tokens, UNKNOWN_REAL_BYTES) if tokens else UNKNOWN_REAL_BYTES, params=0
        )


def _traced_need(config: Configuration) -> Need:
    work = workload(config)
    dtype = torch.bfloat16 if config.precision is Precision.BF16 else torch.float32
    previous = torch.get_default_dtype()
    try:
        torch.set_default_dtype(dtype)
        with torch.device("meta"):
            model = work.build()
    finally:
        torch.set_default_dtype(previous)
    params = sum(p.numel() for p in model.parameters())
    if config.family == "recurrent":
        # Without a GPU, PyTorch unrolls recurrent layers step by step: slow, and unlike cuDNN's reserve.
        saved = int(recurrent.saved_elements(config.style, config.arch) * dtype.itemsize * config.batch_size)
        largest = saved // 3
    else:
        saved, largest = _saved_bytes(config, work, model, dtype)
    if config.precision is Precision.AMP:
        saved, largest = int(saved * 0.65), int(largest * 0.8)
    if config.gradient_checkpointing:
        blocks = max(1, sum(1 for _ in _blocks(model)))
        saved = int(saved * min(1.0, 0.15 + 1.3 / blocks))
    amp_copy = 2 if config.precision is Precision.AMP else 0
    weights = params * (dtype.itemsize * (1 + STATE_COPIES[config.optimizer]) + amp_copy)
    return Need(total_bytes=int(BASE_BYTES + weights + saved * 1.1 + largest * 2), params=params)


def _blocks(model: nn.Module) -> list[nn.Module]:
    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList)]
    return [block for group in lists for block in group] or list(getattr(model, "blocks", []))


def _saved_bytes(
    config: Configuration, work: Workload, model: nn.Module, dtype: torch.dtype
) -> tuple[int, int]:
    """Return the bytes that autograd keeps for backward, and the largest tensor among them."""
    own = {p.untyped_storage()._cdata for p in model.parameters()}
    sizes: dict[int, int] = {}
    alive: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own and storage._cdata not in sizes:
            sizes[storage._cdata] = storage.nbytes()
            alive.append(tensor)
        return tensor

    args, kwargs = make_inputs(work, config.batch_size, "meta", dtype)
    target = None if work.target is None else make_tensor(work.target, config.batch_size, "meta", dtype)
    model.train()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        loss_of(work, model(*args, **kwargs), target)
    return sum(sizes.values()), max(sizes.values(), default=0)


def reservation(need_bytes: int) -> int:
    """Return the bytes to keep free for a run of this rough need, with a margin as it is rough."""
    return int(need_bytes * 1.12 + 0.3 * GIB)
