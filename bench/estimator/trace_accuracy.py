"""Compare traced estimates with measurements: python bench/estimator/trace_accuracy.py --rows train --sample 300.

Traces rows of the dataset, replays them through the simulated allocator, and compares allocated peak, reserved peak
and process memory with the measured ones. Traces are cached in --cache under a hash of the tracer's code.
`--rows heldout` needs torchvision, timm and transformers. The bound's factor (MARGIN_FACTOR in
gpumemnet/tracing/trace/result.py) was chosen on training rows alone, from the percentile and the mean printed here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import math
import multiprocessing
import os
import pickle
import random
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import gpumemnet.tracing.trace
from gpumemnet.estimators.conformal import LEVELS, conformal_margin
from gpumemnet.gpu_memory.allocator.caching import CachingAllocator
from gpumemnet.gpu_memory.allocator.events import replay
from gpumemnet.gpu_memory.rules import numbers
from gpumemnet.gpus import gpu_named
from gpumemnet.learning.dataset.store import HELDOUT_ROWS, TRAINING_ROWS, read_records
from gpumemnet.tracing.trace.result import QUANTILE_FACTORS, doubt_bytes, quantile_bytes
from gpumemnet.units import MIB

Pair = tuple[dict[str, Any], dict[str, Any]]


def code_hash() -> str:
    """Return a hash of the tracer's code, so that old traces are not taken for new ones."""
    folder = Path(gpumemnet.tracing.trace.__file__).parent
    files = [path for path in sorted(folder.rglob("*.py")) if path.name not in ("result.py", "__init__.py")]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


def traced(job: tuple[dict[str, Any], str]) -> dict[str, Any]:
    """Trace one row, or take the cached trace, and replay it."""
    row, folder = job
    from gpumemnet.learning.dataset.config import Configuration
    from gpumemnet.learning.evaluate.traced import trace_configuration

    config = Configuration.from_json(row)
    name = hashlib.sha256(json.dumps(config.to_json(), sort_keys=True).encode()).hexdigest()[:16]
    path = Path(folder) / f"{row['family']}-{name}.xz"
    seconds = None
    if path.exists():
        trace, seconds = pickle.loads(lzma.decompress(path.read_bytes()))
    else:
        begin = time.monotonic()
        try:
            trace = trace_configuration(config)
        except Exception as exc:  # noqa: BLE001 - one bad row must not end the table
            return {"error": f"{type(exc).__name__}: {exc}"[:300]}
        seconds = time.monotonic() - begin
        path.write_bytes(lzma.compress(pickle.dumps((trace, seconds)), preset=0))
    peaks = replay(trace.events)
    gpu = gpu_named("h200")
    base = gpu.conv_base_bytes if trace.uses_cudnn() else gpu.base_bytes
    if trace.uses_cudnn() and not trace.uses_cublas():
        base -= numbers.of("process")["without_cublas"]
    return {
        "allocated_peak_bytes": peaks.allocated_bytes,
        "reserved_peak_bytes": peaks.reserved_bytes,
        "process_peak_bytes": peaks.reserved_bytes + base,
        "convolution_bytes": trace.largest_convolution_bytes(),
        "phases": phase_peaks(trace),
        "seconds": seconds,
    }


def of_doubt(result: dict[str, Any]) -> tuple[int, int]:
    """Return what `doubt_bytes` asks of a result."""
    return result["reserved_peak_bytes"], result["convolution_bytes"]


def phase_peaks(trace: Any) -> dict[str, int]:
    """Return the allocated peak of each phase over all steps, as the dataset has it."""
    allocator = CachingAllocator()
    live: dict[int, Any] = {}
    peaks: dict[str, int] = {}
    position, phase = 0, "parameters"
    for start, following in (*trace.phase_starts, (len(trace.events), "end")):
        peak = allocator.allocated_bytes
        for key, n_bytes in trace.events[position:start]:
            if n_bytes is None:
                allocator.free(live.pop(key, None))
            else:
                live[key] = allocator.malloc(n_bytes)
                peak = max(peak, allocator.allocated_bytes)
        peaks[phase] = max(peak, peaks.get(phase, 0))
        position, phase = start, following
    return peaks


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="train", help="train, heldout, or a .jsonl file")
    parser.add_argument("--sample", type=int, default=300, help="how many rows; 0 for all")
    parser.add_argument("--names", action="store_true", help="one row, drawn at random, of each real name")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "trace-accuracy")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--worst", type=int, default=10, help="how many of the worst rows to list")
    options = parser.parse_args()
    path = {"train": TRAINING_ROWS, "heldout": HELDOUT_ROWS}.get(options.rows) or Path(options.rows)
    rows = [r for r in read_records(path) if r.get("outcome") == "ok"]
    if options.names:
        rows = one_of_each([row for row in rows if row["family"] == "real"], options.seed)
    elif options.sample and len(rows) > options.sample:
        rows = random.Random(options.seed).sample(rows, options.sample)
    folder = options.cache / code_hash()
    folder.mkdir(parents=True, exist_ok=True)
    os.nice(10)
    jobs = [(row, str(folder)) for row in rows]
    if options.processes > 1:
        with multiprocessing.Pool(options.processes, maxtasksperchild=20) as pool:
            results = list(pool.imap(traced, jobs))
    else:
        results = [traced(job) for job in jobs]
    report(list(zip(rows, results, strict=True)), options.worst)


def one_of_each(rows: list[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    """Return one row of each style, which is the name of a real model."""
    draw = random.Random(seed)
    styles: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        styles[row["style"]].append(row)
    chosen = [draw.choice(members) for _, members in sorted(styles.items())]
    draw.shuffle(chosen)
    return chosen


def report(pairs: list[Pair], worst: int) -> None:
    """Print errors by group, the bound, and the worst rows."""
    good = [(row, result) for row, result in pairs if "error" not in result]
    print(
        f"{len(good)} of {len(pairs)} traced, median {statistics.median(r['seconds'] for _, r in good):.1f} s each"
    )
    print(
        f"{'|error| in %: median, P95':32}     n    allocated       reserved        process    above  upper/actual"
    )
    groups: dict[str, list[Pair]] = defaultdict(list)
    for row, result in good:
        source = row["style"].split(":")[0] if row["family"] == "real" else row["family"]
        for name in ("all", source, row["precision"], row["optimizer"]):
            groups[name].append((row, result))
    for name, members in groups.items():
        print(_line(name, members))
    scores = sorted(
        (row["process_peak_bytes"] - r["process_peak_bytes"]) / doubt_bytes(*of_doubt(r)) for row, r in good
    )
    print("conformal quantiles of (actual - estimate) / doubt:")
    print("  " + ", ".join(f"{level:g}: {conformal_margin(scores, level):.3f}" for level in LEVELS))
    print(f"above, booked/actual: {bookings(good)}")
    for row, result in pairs:
        if "error" in result:
            print("failed", row["family"], row["style"], row["index"], result["error"])
    good.sort(key=lambda pair: -abs(pair[1]["process_peak_bytes"] / pair[0]["process_peak_bytes"] - 1))
    for row, result in good[:worst]:
        parts = [
            f"{key.split('_')[0]} {result[key] / MIB:.0f}/{row[key] / MIB:.0f}"
            for key in ("allocated_peak_bytes", "process_peak_bytes")
        ]
        for own, other in (("forward", "forward"), ("backward", "backward"), ("optimizer", "step")):
            missed = (result["phases"][own] - row["phase_peak_bytes"][other]) / MIB
            parts.append(f"{own} {missed:+.0f}")
        name = f"{row['family']}/{row['style']} {row['index']} {row['precision']} {row['optimizer']}"
        print(name, f"batch {row['batch_size']}", *parts)


def bookings(good: list[Pair]) -> str:
    """Say how often each quantile that ships is exceeded, and how much booking it takes of what is needed."""
    booked = [
        [
            (result["process_peak_bytes"] + more) / row["process_peak_bytes"]
            for _, more in quantile_bytes(*of_doubt(result))
        ]
        for row, result in good
    ]
    return ", ".join(
        f"{share:.1%} {statistics.fmean(each < 1 for each in column):.1%} {statistics.fmean(column):.3f}"
        for (share, _), column in zip(QUANTILE_FACTORS, zip(*booked, strict=True), strict=True)
    )


def _line(name: str, members: list[Pair]) -> str:
    parts = []
    for key in ("allocated_peak_bytes", "reserved_peak_bytes", "process_peak_bytes"):
        sizes = sorted(abs(r[key] / row[key] - 1) for row, r in members)
        # The nearest rank: 95 % of the rows are no worse.
        p95 = sizes[math.ceil(0.95 * len(sizes)) - 1]
        parts.append(f"{100 * statistics.median(sizes):6.2f} {100 * p95:6.2f}")
    uppers = [
        (r["process_peak_bytes"] + quantile_bytes(*of_doubt(r))[-1][1]) / row["process_peak_bytes"]
        for row, r in members
    ]
    above = sum(upper < 1 for upper in uppers)
    return f"{name:32}{len(members):6}  {'  '.join(parts)}  {above:4}/{len(uppers)}  {statistics.fmean(uppers):.3f}"


if __name__ == "__main__":
    main()
