"""Run a loader's worker setup in the script's own process, which acts as the only worker.

Data sets open their files in `worker_init_fn`, and streams use `get_worker_info` to get their share: here all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils import worker

SEED = 0
"""Random seed of a worker; the drawn values are not trained on."""


class WorkerIterator:
    """A loader's iterator that reads as the first of one worker.

    Args:
        loader: The loader, which requested workers.
        batches: Its iterator.
    """

    def __init__(self, loader: Any, batches: Any) -> None:
        self._batches, self._streams = batches, isinstance(loader.dataset, IterableDataset)
        self._info = worker.WorkerInfo(id=0, num_workers=1, seed=SEED, dataset=loader.dataset)
        prepare = loader.worker_init_fn
        if prepare is not None:
            state = torch.get_rng_state()
            self._within(lambda: prepare(0))
            torch.set_rng_state(state)  # the seed is for a worker, not the script

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
