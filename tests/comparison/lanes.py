"""Heads in batches, on several pairs of clusters at once: what has a result is not run again."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, Queue

from comparison.both import both, release, results_of
from comparison.catalogue import Head, Size, heads
from comparison.clusters import Variant

from lab.daemons import LabError
from slurm_plugin.core.errors import CommandError

BATCH = 12
"""How many heads that are no kind are run together."""
KINDS: dict[Size, int] = {"short": BATCH, "middle": 7, "long": 1}
"""How many kinds are run together: the more forms each has, the fewer."""


def batches(chosen: Iterable[Head], finished: set[str], size: Size) -> list[frozenset[str]]:
    """Return which heads are run together: kinds with those of many forms, others in groups.

    Args:
        chosen: What is to be run.
        finished: Names of heads that have a result.
        size: How many forms a kind has.
    """
    missing = [head for head in chosen if head.name not in finished]
    kinds = [head.name for head in missing if head.is_kind]
    others = [head.name for head in missing if not head.is_kind and size != "middle"]
    return [*_groups(kinds, KINDS[size]), *_groups(others, BATCH)]


def _groups(names: list[str], count: int) -> list[frozenset[str]]:
    return [frozenset(names[start : start + count]) for start in range(0, len(names), count)]


def resume(variant: Variant, home: Path, *, size: Size, only: str, lanes: int, limit_s: float) -> list[str]:
    """Run the heads that have no result yet, and return the errors of batches that broke off.

    Args:
        variant: The kind of site.
        home: The checkout's own folder.
        size: Which cells are run.
        only: A part of the names of the heads that are run; "" for all.
        lanes: How many pairs of clusters are used at once.
        limit_s: No batch begins later than this.
    """
    _, numbers = release()
    finished = {path.stem for path in results_of(variant, home, size).glob("*.jsonl")}
    known = [head for head in heads() if head.runs_on(numbers) and (variant.hetjobs or not head.is_hetjob)]
    waiting: Queue[frozenset[str]] = Queue()
    for batch in batches((head for head in known if only in head.name), finished, size):
        waiting.put(batch)
    deadline = time.monotonic() + limit_s
    errors: list[str] = []

    def work(lane: int) -> None:
        while time.monotonic() < deadline:
            try:
                batch = waiting.get_nowait()
            except Empty:
                return
            try:
                both(variant, home, size=size, names=batch, lane=lane)
            except BlockingIOError:
                waiting.put(batch)
                errors.append(f"another run uses lane {lane}")
                return
            except (LabError, CommandError, OSError):
                errors.append(f"{', '.join(sorted(batch))}:\n{traceback.format_exc()}")

    with ThreadPoolExecutor(lanes) as pool:
        for lane in range(lanes):
            pool.submit(work, lane)
    return errors
