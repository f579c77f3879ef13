"""Compare traced scripts with their measured peaks: python bench/scripts/script_errors.py ROWS... [--gpu h200].

ROWS hold the lines of bench/scripts/measured_scripts.py and bench/scripts/traced_scripts.py --rows; of two traces of a
script the later counts, so that a file made again stands behind the one of the measuring. Measured is what NVML showed
of the process at its peak; traced is what `rad-estimate` answers. "Allocator" compares PyTorch's reserved bytes alone,
without the base of the process, which the table of rules has.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from training_scripts import SCRIPTS, WAYS

from gpumemnet.estimators.registry import estimate
from gpumemnet.gpus import Gpu, gpu_named
from gpumemnet.tracing.saved.record import SavedProfile
from gpumemnet.units import MIB

WITHIN = 0.05
"""The aim."""
LINE = "| {:46} | {:>8} | {:>6} | {:>6} | {:>9} | {:>6} |"


class ComparedScript(NamedTuple):
    """One script.

    Attributes:
        script: Its line.
        measured_bytes: What NVML showed of its process at its peak.
        traced_bytes: The estimate.
        bound_bytes: Its bound.
        reserved_share: Reserved bytes as traced over those of PyTorch's allocator.
    """

    script: str
    measured_bytes: int
    traced_bytes: int
    bound_bytes: int
    reserved_share: float

    @property
    def error(self) -> float:
        """The estimate's, as a share of the measured peak; negative where it is too low."""
        return self.traced_bytes / self.measured_bytes - 1


def read(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Yield the rows of files.

    Args:
        paths: The files, in the order of their rank.
    """
    for path in paths:
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def compared(rows: Iterable[dict[str, Any]], gpu: Gpu) -> tuple[list[ComparedScript], dict[str, str]]:
    """Return the scripts that were traced and measured, and why others were not.

    Args:
        rows: Of both kinds.
        gpu: Where they were measured.
    """
    last = {(row["kind"], row["script"]): row for row in rows}
    found, missing = [], {}
    for script in (*SCRIPTS, *WAYS):
        measured, traced = last.get(("measured", script), {}), last.get(("traced", script), {})
        if not measured.get("process_peak_bytes") or measured.get("steps", 0) < 2:
            missing[script] = f"not measured: {measured.get('ended', 'it was not run')}"
        elif "profile" not in traced:
            missing[script] = f"not traced: {traced.get('why', 'it was not tried')}"
        else:
            saved = SavedProfile.from_text(json.dumps(traced["profile"]), path=script)
            profile = next(p for p in saved.profiles if p.batch_size == saved.batch_size)
            reported = estimate(profile, gpu=gpu)
            found.append(
                ComparedScript(
                    script=script,
                    measured_bytes=measured["process_peak_bytes"],
                    traced_bytes=reported.estimate_bytes,
                    bound_bytes=reported.upper_bytes,
                    reserved_share=profile.reserved_bytes / measured["reserved_peak_bytes"],
                )
            )
    return found, missing


def table(found: Iterable[ComparedScript]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield LINE.format("script", "measured", "traced", "error", "allocator", "bound")
    yield "|---|---|---|---|---|---|"
    for each in found:
        yield LINE.format(
            each.script,
            round(each.measured_bytes / MIB),
            round(each.traced_bytes / MIB),
            f"{each.error:+.1%}",
            f"{each.reserved_share - 1:+.1%}",
            "holds" if each.bound_bytes >= each.measured_bytes else "BROKEN",
        )


def main() -> None:
    """Print the twenty, the further ways, and how many are within the aim."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=Path, nargs="+")
    parser.add_argument("--gpu", default="h200", help="where they were measured")
    options = parser.parse_args()
    found, missing = compared(read(options.rows), gpu_named(options.gpu))
    for name, those in (("scripts", SCRIPTS), ("further ways", WAYS)):
        mine = [each for each in found if each.script in those]
        near = sum(abs(each.error) <= WITHIN for each in mine)
        print(*table(mine), sep="\n")
        print(f"\n{near} of {len(those)} {name} within {WITHIN:.0%}; {len(mine)} of them measured\n")
    for script, why in missing.items():
        print(f"{script}: {why}")


if __name__ == "__main__":
    main()
