"""PyTorch's own record of every allocation and free of a process, in compact form."""

from __future__ import annotations

import time
from bisect import bisect_right
from typing import Any

KEPT_EVENTS = 300_000


class History:
    """PyTorch's record of allocations, with marks by clock and count, as reading it again each time would be slow."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self.marks: list[tuple[int, int, str]] = []
        torch.cuda.init()
        torch.cuda.memory._record_memory_history(context=None, max_entries=2 * KEPT_EVENTS)

    def mark(self, name: str) -> None:
        """Note where a phase ends."""
        count = self._torch.cuda.memory_stats_as_nested_dict()["allocation"]["all"]["allocated"]
        self.marks.append((time.time_ns() // 1000, count, name))

    def stop(self) -> None:
        """Record no more, and forget."""
        self._torch.cuda.memory._record_memory_history(enabled=None)

    def to_json(self) -> dict[str, Any]:
        """Return events, sizes, addresses and marks in compact form."""
        device = self._torch.cuda.current_device()
        entries = self._torch.cuda.memory._snapshot()["device_traces"][device]
        letters = {
            "alloc": "a",
            "free_requested": "f",
            "segment_alloc": "s",
            "segment_map": "s",
            "segment_free": "S",
            "segment_unmap": "S",
            "oom": "o",
        }
        kept = [e for e in entries if e["action"] in letters][:KEPT_EVENTS]
        times = [e["time_us"] for e in kept]
        lowest = min((e["addr"] for e in kept if e["addr"]), default=0)
        streams = sorted({e["stream"] for e in kept})
        return {
            "events": "".join(letters[e["action"]] for e in kept),
            "sizes": [e["size"] for e in kept if e["action"] != "free_requested"],
            "addresses": [(e["addr"] - lowest) // 512 for e in kept],
            "streams": "".join(str(min(streams.index(e["stream"]), 9)) for e in kept),
            "marks": [[bisect_right(times, at), count, name] for at, count, name in self.marks],
            "all_events": len(entries),
        }
