"""Make a site's table of rules from measurements, and write it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpumemnet.calibration.fit.derivations import DERIVATIONS, Seen
from gpumemnet.errors import SetupError
from gpumemnet.gpu_memory.rules import numbers
from gpumemnet.gpu_memory.rules.numbers import COLUMNS, UNIT_BYTES, Rule, Status
from gpumemnet.gpus import NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Result of a measurement.

    Attributes:
        rules: Rows for the site's table.
        notes: One line for each part without usable results, and for numbers known only as a range.
    """

    rules: tuple[Rule, ...]
    notes: tuple[str, ...]


def gpu_key(product: str) -> str:
    """Return a GPU type's name in the table: RAD's if known, else the product's without the maker.

    Args:
        product: The driver's name: "NVIDIA A100-SXM4-40GB".
    """
    wanted = product.lower()
    return next((name for name in NAMES if name in wanted), wanted.removeprefix("nvidia ").strip())


def rows(seen: Seen, *, found_by: str) -> Table:
    """Convert a measurement to rows.

    Args:
        seen: Results of the parts; failed parts are missing.
        found_by: Value of the column of that name: command and date.

    Returns:
        The rows; a number that was not measured has none, and keeps RAD's value.

    Raises:
        SetupError: The part "device" is missing, which names the rows.
    """
    try:
        about = seen["device"]
        gpu, releases = gpu_key(about["gpu"]), _releases(about)
    except (KeyError, TypeError) as exc:
        raise SetupError(f"the GPU is unknown ({exc!r}); nothing can be fitted") from exc
    known = {(rule.library, rule.name): rule for rule in numbers.read_table(numbers.TABLE)}
    made: list[Rule] = []
    notes: list[str] = []
    for library, needs, derive in DERIVATIONS:
        if not all(name in seen for name in needs):
            notes.append(f"{library}: not measured ({', '.join(n for n in needs if n not in seen)})")
            continue
        try:
            values, more = derive(seen)
        except (SetupError, KeyError, TypeError, ValueError, ZeroDivisionError) as exc:
            notes.append(f"{library}: nothing usable was measured ({exc})")
            continue
        notes += more
        made += [
            known[library, name]._replace(
                gpu=gpu,
                release=releases[library],
                value=value,
                status=Status.MEASURED,
                found_by=found_by,
            )
            for name, value in values.items()
        ]
    return Table(rules=tuple(made), notes=tuple(notes))


def as_text(rules: Iterable[Rule]) -> str:
    """Write rows as a table.

    Args:
        rules: The rows; sizes that are not a whole number of their unit are rounded up.
    """
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(COLUMNS)
    for rule in rules:
        value = -(-rule.value // UNIT_BYTES.get(rule.unit, 1))
        lines.writerow(
            (
                rule.library,
                rule.release,
                rule.gpu,
                rule.name,
                value,
                rule.unit,
                rule.status,
                rule.found_by,
                rule.meaning,
            )
        )
    return out.getvalue()


def merged(old: Sequence[Rule], new: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return a site's table with new rows: the GPU measured last comes first, as profiles follow the first.

    Args:
        old: The current table.
        new: The new rows; they replace old rows for the same number.
    """
    keys = {(rule.library, rule.gpu, rule.name) for rule in new}
    return (*new, *(rule for rule in old if (rule.library, rule.gpu, rule.name) not in keys))


def _releases(about: Mapping[str, Any]) -> dict[str, str]:
    torch = f"PyTorch {about['torch']}"
    return {
        "device": f"CUDA {about['cuda']}",
        "process": f"{torch} CUDA {about['cuda']}",
        "allocator": torch,
        "cublas": str(about["cuda"]),
        "cudnn": str(about["cudnn"]),
        "mps": str(about["driver"]),
    }
