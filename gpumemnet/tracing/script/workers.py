"""What a script prepares for its loaders' worker processes, where the only worker is the script's own process.

Data sets open their files in `worker_init_fn`, and streams ask `get_worker_info` for their share: all of it, here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils import worker

SEED = 0
"""A worker's: what it draws is not trained on."""


class Worker:
    """A loader's iterator that reads as its first worker of one.

    Args:
        loader: That asked for workers.
        batches: Its iterator.
    """

    def __init__(self, loader: Any, batches: Any) -> None:
        self._batches, self._streams = batches, isinstance(loader.dataset, IterableDataset)
        self._info = worker.WorkerInfo(id=0, num_workers=1, seed=SEED, dataset=loader.dataset)
        prepare = loader.worker_init_fn
        if prepare is not None:
            state = torch.get_rng_state()
            self._within(lambda: prepare(0))
            torch.set_rng_state(state)  # it seeds a worker's, not the script's

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self._within(lambda: next(self._batches)) if self._streams else next(self._batches)

    def __len__(self) -> int:
        return len(self._batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)

    def _within(self, read: Callable[[], Any]) -> Any:
        before, worker._worker_info = get_worker_info(), self._info
        try:
            return read()
        finally:
            worker._worker_info = before
