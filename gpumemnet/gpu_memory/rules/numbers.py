"""Look up a number in the tables of rules.

`rules.csv` has one number per row: a library release's behaviour on one GPU, whether it was measured, read in the
library's source or assumed, and the command or file that found it. Code contains only the form of each rule. A site's
table (SITE_TABLE, written by `rad calibrate --deep`) has the same columns; its rows override RAD's.

GPUs without rows use those of REFERENCE_GPU, where all were found; releases are the newest that was examined. A profile
is made before its GPU is known: it uses the first GPU in the site's table.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from gpumemnet.errors import SetupError
from gpumemnet.names import StrEnum
from gpumemnet.units import KIB, MIB

TABLE = Path(__file__).resolve().parent / "rules.csv"
SITE_TABLE = Path("/etc/rad/rules.csv")
"""Read in addition to RAD's table if it exists; a broken one is ignored as a whole, with one line in the log."""
REFERENCE_GPU = "h200"
ANY = "*"
"""Represents every GPU in the column of GPUs."""
COLUMNS = ("library", "release", "gpu", "rule", "value", "unit", "status", "found_by", "meaning")
UNIT_BYTES = {"KiB": KIB, "MiB": MIB}


class Status(StrEnum):
    """Origin of a number."""

    MEASURED = "measured"
    SOURCE = "source"
    """It is in the library's own source code."""
    ASSUMED = "assumed"


class Rule(NamedTuple):
    """One row of a table.

    Attributes:
        library: The library with this behaviour.
        release: Examined release of the library.
        gpu: Type of GPU, or ANY.
        name: Name of the number.
        value: The number; sizes are in bytes, whatever the table's unit.
        unit: Unit in the table.
        status: Its origin.
        found_by: Command, file or page with the number.
        meaning: Description.
    """

    library: str
    release: str
    gpu: str
    name: str
    value: int
    unit: str
    status: Status
    found_by: str
    meaning: str


def read_table(path: Path) -> tuple[Rule, ...]:
    """Read a table of rules.

    Args:
        path: A file with COLUMNS.

    Returns:
        Its rows.

    Raises:
        SetupError: A row is wrong; the message names file, line and fix.
        OSError: It cannot be read.
    """
    found = []
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        if tuple(next(lines, ())) != COLUMNS:
            raise SetupError(f"{path}:1: the columns must be {','.join(COLUMNS)}")
        for row in lines:
            try:
                library, release, gpu, name, value, unit, status, found_by, meaning = row
                n = int(value) * UNIT_BYTES.get(unit, 1)
                found.append(Rule(library, release, gpu, name, n, unit, Status(status), found_by, meaning))
            except ValueError:
                raise SetupError(
                    f"{path}:{lines.line_num}: a row has {len(COLUMNS)} fields, value a whole number, "
                    f"status one of {', '.join(Status)}"
                ) from None
    return tuple(found)


def read_site_table(path: Path) -> tuple[Rule, ...]:
    """Read a site's table, which may only contain rules that RAD has.

    Returns:
        Its rows; none if there is no such file.

    Raises:
        SetupError: It cannot be used; the message names file and fix.
    """
    try:
        found = read_table(path)
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError, csv.Error) as exc:
        raise SetupError(f"{path}: {exc}; correct it or remove it") from exc
    known = {(rule.library, rule.name) for rule in read_table(TABLE)}
    for rule in found:
        if (rule.library, rule.name) not in known:
            raise SetupError(f"{path}: {rule.library} has no rule {rule.name!r}; remove that row")
        if rule.value <= 0:
            raise SetupError(f"{path}: {rule.library} {rule.name}: the value must be above 0")
    return found


@lru_cache(maxsize=1)
def site_rules() -> tuple[Rule, ...]:
    """Return the rows of the site's table; none if it is missing, or broken, which is logged."""
    try:
        return read_site_table(SITE_TABLE)
    except SetupError as exc:
        import logging  # slower than the table, and seldom needed

        logging.getLogger(__name__).warning("%s; estimates continue without it", exc)
        return ()


@lru_cache(maxsize=1)
def rules() -> tuple[Rule, ...]:
    """Return all rules; the site's row replaces RAD's for the same number."""
    rows = (*read_table(TABLE), *site_rules())
    return tuple({(rule.library, rule.gpu, rule.name): rule for rule in rows}.values())


@lru_cache(maxsize=64)
def of(library: str, gpu: str = "") -> Mapping[str, int]:
    """Return the numbers of one library by name.

    Args:
        library: Name in the table: "cudnn", "cublas", "process".
        gpu: Type of GPU; missing numbers are taken from ANY, then from REFERENCE_GPU. "" is the site's.

    Returns:
        Numbers by name; sizes in bytes.
    """
    gpu = gpu or next((rule.gpu for rule in site_rules() if rule.gpu != ANY), REFERENCE_GPU)
    found: dict[str, int] = {}
    for wanted in (REFERENCE_GPU, ANY, gpu):
        found |= {rule.name: rule.value for rule in rules() if rule.library == library and rule.gpu == wanted}
    return found
