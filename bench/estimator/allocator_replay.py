"""Compare our allocator model with recorded peaks of PyTorch's: python bench/estimator/allocator_replay.py.

Replays every recorded allocation and free of gpumemnet/data/history_h200.jsonl.xz
(bench/estimator/allocator_history.py made it on an H200) through `gpumemnet.gpu_memory.allocator` and compares the
reserved peak with the recorded one. Given the same calls, the two should agree: what differs is the simulation's fault
alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gpumemnet.gpu_memory.allocator.events import replay
from gpumemnet.learning.dataset.store import DATA, read_records


def calls(record: dict[str, Any]) -> list[tuple[int, int | None]]:
    """Return the recorded allocations (number, bytes) and frees (number, None) in order."""
    sizes, live, found = iter(record["sizes"]), {}, []
    for number, (event, address) in enumerate(zip(record["events"], record["addresses"], strict=True)):
        n_bytes = None if event == "f" else next(sizes)
        if event == "a":
            live[address] = number
            found.append((number, n_bytes))
        elif event == "f":
            found.append((live.pop(address), None))
    return found


def main() -> None:
    """Print how many runs agree, and the worst that do not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--history", type=Path, default=DATA / "history_h200.jsonl.xz")
    errors = {}
    for record in read_records(parser.parse_args().history):
        if record.get("outcome") == "ok" and "config" in record:
            config = record["config"]
            name = f"{config['style']}, batch {config['batch_size']}, {config['precision']}"
            own = replay(calls(record)).reserved_bytes
            errors[name] = own / record["reserved_peak_bytes"] - 1
    same = sum(error == 0 for error in errors.values())
    print(f"{len(errors)} runs: the same reserved peak to the byte in {same}")
    for name, error in sorted(errors.items(), key=lambda item: -abs(item[1]))[: len(errors) - same]:
        print(f"{error:+.2%} {name}")


if __name__ == "__main__":
    main()
