"""FakeTensor, as the thesis uses it (section 5.3.2): live storages of one forward and backward on fake tensors.

Kept as a baseline. Known limitations: no optimizer, no context or libraries, no workspace, no allocator. It needs the
model's code and torch, so it answers for a module, not for a profile.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class StorageCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sums the bytes of all live storages that pass through any operation.

    Attributes:
        live_bytes: Now.
        peak_bytes: At most so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live_bytes = self.peak_bytes = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation and count the storages of its results."""
        result = func(*args, **(kwargs or {}))
        for leaf in tree_iter(result):
            if isinstance(leaf, torch.Tensor):
                self.count(leaf)
        return result

    def count(self, tensor: torch.Tensor) -> None:
        """Count a tensor's storage until it dies."""
        storage = tensor.untyped_storage()
        key, n_bytes = storage._cdata, storage.nbytes()
        if key in self._seen:
            return
        self._seen.add(key)
        self.live_bytes += n_bytes
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        weakref.finalize(storage, self._gone, key, n_bytes)

    def _gone(self, key: int, n_bytes: int) -> None:
        self._seen.discard(key)
        self.live_bytes -= n_bytes


def peak_bytes(build: Callable[[], torch.nn.Module], step: Callable[[torch.nn.Module], torch.Tensor]) -> int:
    """Return the estimate for one module.

    Args:
        build: Makes the model on the current default device.
        step: Runs the forward pass on inputs of the same device and returns the loss.
    """
    with torch.device("meta"):
        counter = StorageCounter()
        model = build().train()
        for tensor in (*model.parameters(), *model.buffers()):
            counter.count(tensor)
        with counter:
            torch.autograd.backward(step(model))
    return counter.peak_bytes
