"""Look a number up in the table of rules.

`rules.csv` holds one number a row: what one library's release does on one GPU, whether that was measured, read in the
library's source or assumed, and the command or file that found it. Code holds the form of each rule alone. GPUs without
rows of their own take those of REFERENCE_GPU, on which all were found; releases are the newest that was looked at.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from gpumemnet.units import KIB, MIB

TABLE = Path(__file__).resolve().parent / "rules.csv"
REFERENCE_GPU = "h200"
ANY = "*"
"""Stands for every GPU in the column of GPUs."""
_UNIT_BYTES = {"KiB": KIB, "MiB": MIB}


class Status(StrEnum):
    """How a number is known."""

    MEASURED = "measured"
    SOURCE = "source"
    """It is in the library's own source code."""
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row of the table.

    Attributes:
        library: Whose behaviour it is.
        release: Of the library, as looked at.
        gpu: Type of GPU, or ANY.
        name: Of the number.
        value: The number; sizes are bytes, whatever unit the table writes them in.
        status: How it is known.
        found_by: Command, file or page that tells it.
    """

    library: str
    release: str
    gpu: str
    name: str
    value: int
    status: Status
    found_by: str


@lru_cache(maxsize=1)
def rules() -> tuple[Rule, ...]:
    """Return all rows of the table."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return tuple(
            Rule(
                library=row["library"],
                release=row["release"],
                gpu=row["gpu"],
                name=row["rule"],
                value=int(row["value"]) * _UNIT_BYTES.get(row["unit"], 1),
                status=Status(row["status"]),
                found_by=row["found_by"],
            )
            for row in csv.DictReader(file)
        )


@lru_cache(maxsize=64)
def of(library: str, gpu: str = REFERENCE_GPU) -> Mapping[str, int]:
    """Return the numbers of one library by name.

    Args:
        library: As in the table: "cudnn", "cublas", "process".
        gpu: Type of GPU; what it has no row for is taken from ANY, then from REFERENCE_GPU.

    Returns:
        Numbers by name; sizes in bytes.
    """
    found: dict[str, int] = {}
    for wanted in (REFERENCE_GPU, ANY, gpu):
        found |= {rule.name: rule.value for rule in rules() if rule.library == library and rule.gpu == wanted}
    return found
