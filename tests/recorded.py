"""What an H200 was recorded to do (gpumemnet/data), in the form of the programs of `rad calibrate --deep`."""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

DATA = Path(__file__).resolve().parents[1] / "gpumemnet" / "data"
ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
KINDS = {"staged_cnn": "conv", "mlp": "dense", "unet": "convs_only"}
"""Family of models -> which base its processes have."""

Event = tuple[str, int | None, int]
"""Letter, bytes and address of one event of an allocator's history."""


def records(name: str) -> Iterator[dict[str, Any]]:
    with lzma.open(DATA / name, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


@lru_cache(maxsize=1)
def sweeps() -> tuple[dict[str, Any], ...]:
    """The processes that ran single convolutions."""
    return tuple(record for record in records("history_h200.jsonl.xz") if "sweep" in record)


def events(record: Mapping[str, Any]) -> list[Event]:
    sizes = iter(record["sizes"])
    return [
        (letter, None if letter == "f" else next(sizes), address)
        for letter, address in zip(record["events"], record["addresses"], strict=True)
    ]


def segments() -> dict[str, Any]:
    """Requests that made the allocator ask the driver for a segment, and the segment."""
    found = set[tuple[int, int]]()
    for record in sweeps():
        happened = events(record)
        for (letter, segment, _), (after, request, _) in pairwise(happened):
            if letter == "s" and after == "a":
                found.add((request or 0, segment or 0))
    return {"segments": sorted(found)}


def bases() -> dict[str, dict[str, Any]]:
    """The middle of the bases of the processes of each kind."""
    found: dict[str, list[int]] = {kind: [] for kind in KINDS.values()}
    for record in records("train_h200.jsonl.xz"):
        kind = KINDS.get(record.get("family", record.get("config", {}).get("family", "")))
        if kind is not None and record["outcome"] == "ok":
            found[kind].append(record["base_bytes"])
    return {kind: {"base_bytes": median(values)} for kind, values in found.items()}


def convolutions(record: Mapping[str, Any]) -> dict[str, Any]:
    """The workspace of each pass of a process' convolutions."""
    happened = [event for event in events(record) if event[0] in "af"]
    allocations = [at for at, event in enumerate(happened) if event[0] == "a"]
    marks = {name: count for _, count, name in record["marks"]}

    def part(begin: str, end: str) -> list[Event]:
        first, last = (
            allocations[marks[name]] if marks[name] < len(allocations) else len(happened)
            for name in (begin, end)
        )
        return happened[first:last]

    found: list[dict[str, Any]] = []
    for number, call in enumerate(record["sweep"]):
        if f"{number} end" not in marks or call["groups"] == call["x"][1] > 1:
            continue
        item_bytes = ITEM_BYTES[call["dtype"]]
        sides = (
            (side + 2 * pad - kernel) // call["stride"] + 1
            for side, pad, kernel in zip(call["x"][2:], call["padding"], call["w"][2:], strict=True)
        )
        y = [call["x"][0], call["w"][0], *sides]
        reported = {
            "x": call["x"],
            "y": y,
            "area": math.prod(call["w"][2:]),
            "groups": call["groups"],
            "item_bytes": item_bytes,
            "strided": call["stride"] > 1,
        }
        bias_bytes = call["w"][0] * item_bytes if call["bias"] else 0
        outputs = {"forward": y, "data": call["x"], "weight": call["w"]}
        for begin, end, kinds in (
            ("forward", "backward", ["forward"]),
            ("backward", "end", ["data", "weight"] if call["input_gradient"] else ["weight"]),
        ):
            results = [(kind, math.prod(outputs[kind]) * item_bytes) for kind in kinds]
            borrowed = _borrowed(part(f"{number} {begin}", f"{number} {end}"), results, bias_bytes)
            found += [
                reported | {"kind": kind, "workspace_bytes": n_bytes} for kind, n_bytes in borrowed.items()
            ]
    return {"convolutions": found}


def _borrowed(part: list[Event], results: list[tuple[str, int]], bias_bytes: int) -> dict[str, int]:
    """After each result is allocated, what is taken and given back at once is the workspace of its pass."""
    found: dict[str, int] = {}
    kind = ""
    for (letter, n_bytes, address), after in zip(part, [*part[1:], ("", None, 0)], strict=True):
        if letter != "a" or n_bytes is None:
            continue
        if results and n_bytes == results[0][1]:
            kind = results.pop(0)[0]
            found[kind] = 0
        elif kind and not found[kind] and after[0] == "f" and after[2] == address and n_bytes != bias_bytes:
            found[kind] = n_bytes
    return found
