"""Print measured programs next to their traces: python bench/programs/program_tables.py ROWS [--gpu h100].

ROWS are those of keep_rows.py (docs/results/programs.jsonl.xz). "Measured" is what NVML showed of the process at its
peak. Where cuDNN tries its algorithms (`torch.backends.cudnn.benchmark`), it is what the process used after the trials,
and "trials" is their peak: PyTorch gives that memory back, and leaves out what does not fit. "Seconds" are a trace's.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from keep_rows import read, works
from lines import parsed

from gpumemnet.estimators.registry import estimate
from gpumemnet.gpus import Gpu, gpu_named
from gpumemnet.profile.record import ModelProfile
from gpumemnet.tracing.saved.record import SavedProfile
from gpumemnet.units import MIB

BOOKED = 0.95
WIDTH = 72
_OF_NO_USE = re.compile(r"implementations/\w+/|env \S+ |torchrun |--\w*port \d+ |--nproc_per_node \d+ ")
LINE = "| {:72} | {:>8} | {:>6} | {:>6} | {:>12} | {:>6} | {:>6} | {:>7} |"
HEAD = ("program", "estimate", "booked", "bound", "measured", "error", "trials", "seconds")


class ComparedProgram(NamedTuple):
    """One program.

    Attributes:
        name: Its line, shortened.
        profile: Its trace's.
        estimate_bytes: The estimate.
        booked_bytes: What 95 % of jobs stay below.
        bound_bytes: What 99 % stay below.
        needed_bytes: Measured, after trials.
        peak_bytes: Measured, with trials.
        seconds: The trace took.
    """

    name: str
    profile: ModelProfile
    estimate_bytes: int
    booked_bytes: int
    bound_bytes: int
    needed_bytes: int
    peak_bytes: int
    seconds: float

    @property
    def error(self) -> float:
        """The estimate's, as a share of what was measured; negative where it is too low."""
        return self.estimate_bytes / self.needed_bytes - 1


def profile_of(row: dict[str, Any]) -> ModelProfile:
    """Return the profile of a traced row."""
    saved = SavedProfile.from_text(json.dumps(row["profile"]), path=row["script"])
    return next(each for each in saved.profiles if each.batch_size == saved.batch_size)


def needed_bytes(row: dict[str, Any], *, benchmark: bool) -> int:
    """Return what a process used at its peak, trials left out.

    Args:
        row: Measured.
        benchmark: Whether cuDNN tried its algorithms.
    """
    peak: int = row["process_peak_bytes"]
    return min(peak, row["held_bytes"] + row["outside_bytes"]) if benchmark else peak


def compared(measured: dict[str, Any], traced: dict[str, Any], gpu: Gpu) -> ComparedProgram:
    """Return a program that was measured and traced.

    Args:
        measured: Its measured row; empty if it was not measured.
        traced: Its traced row.
        gpu: Where it was measured.
    """
    profile = profile_of(traced)
    estimated = estimate(profile, gpu=gpu)
    return ComparedProgram(
        name=short(traced["script"]),
        profile=profile,
        estimate_bytes=estimated.estimate_bytes,
        booked_bytes=estimated.quantile(BOOKED),
        bound_bytes=estimated.upper_bytes,
        needed_bytes=needed_bytes(measured, benchmark=bool(profile.benchmark)) if measured else 0,
        peak_bytes=measured.get("process_peak_bytes", 0),
        seconds=traced["seconds"],
    )


def estimated(rows: Iterable[dict[str, Any]], gpu: Gpu) -> list[ComparedProgram]:
    """Return the programs that were traced, with what was measured of them.

    Args:
        rows: Packed ones.
        gpu: Where they were measured.
    """
    rows = sorted(rows, key=lambda row: row["script"])
    seen = {row["script"]: row for row in rows if row["kind"] == "measured" and works(row)}
    return [compared(seen.get(row["script"], {}), row, gpu) for row in rows if "profile" in row]


def both(found: Iterable[ComparedProgram]) -> list[ComparedProgram]:
    """Return the programs that were measured and traced."""
    return [each for each in found if each.needed_bytes]


def repository(line: str) -> str:
    """Return the folder of a program's clone."""
    program = parsed(line)
    place = program.clone or next(word for word in program.words if "/" in word)
    return place.partition("/")[0]


def short(line: str) -> str:
    """Return a program's line as it stands in the table."""
    name = repository(line)
    rest = _OF_NO_USE.sub("", line.rpartition(" && ")[2]).removeprefix(f"{name}/")
    text = f"{name}: {rest}"
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def table(found: Iterable[ComparedProgram]) -> Iterator[str]:
    """Yield the lines of a table, in MiB."""
    yield LINE.format(*HEAD)
    yield "|---|---|---|---|---|---|---|---|"
    for each in found:
        sizes = (each.estimate_bytes, each.booked_bytes, each.bound_bytes)
        trials = each.peak_bytes if each.peak_bytes > each.needed_bytes else 0
        yield LINE.format(
            each.name,
            *(round(size / MIB) for size in sizes),
            round(each.needed_bytes / MIB) or "not measured",
            f"{each.error:+.1%}" if each.needed_bytes else "",
            round(trials / MIB) or "",
            round(each.seconds),
        )


def figures(found: Sequence[ComparedProgram]) -> Iterator[str]:
    """Yield the figures that the aims are about."""
    sizes = sorted(abs(each.error) for each in found)
    booked = sum(each.needed_bytes > each.booked_bytes for each in found)
    bound = sum(each.needed_bytes > each.bound_bytes for each in found)
    yield (
        f"{len(found)} measured and traced; error: median {statistics.median(sizes):.1%},"
        f" P95 {sizes[math.ceil(0.95 * len(sizes)) - 1]:.1%};"
        f" above what is booked {booked} ({booked / len(found):.0%}),"
        f" above the bound {bound} ({bound / len(found):.0%})"
    )


def main() -> None:
    """Print the table, the figures by kind, and what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=Path)
    parser.add_argument("--gpu", default="h100", help="where they were measured")
    options = parser.parse_args()
    rows = read(options.rows)
    traced = estimated(rows, gpu_named(options.gpu))
    print(*table(traced), "", sep="\n")
    found = both(traced)
    for name, members in (
        ("all", found),
        ("without trials", [each for each in found if not each.profile.benchmark]),
        ("with trials", [each for each in found if each.profile.benchmark]),
    ):
        if members:
            print(f"{name}: {next(figures(members))}")
    tried = [row for row in rows if row["kind"] == "traced"]
    clones = {repository(row["script"]) for row in tried}
    print(f"\n{sum(map(works, tried))} of {len(tried)} programs of {len(clones)} repositories traced")
    for row in rows:
        if "why" in row:
            print(f"not traced: {short(row['script'])}: {row['why']}")
        elif row["kind"] == "measured" and not works(row):
            print(f"not measured: {short(row['script'])}: {row['ended']} {row.get('log', '')}".rstrip())


if __name__ == "__main__":
    main()
