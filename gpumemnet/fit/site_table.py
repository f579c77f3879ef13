"""A site's own table of rules: rows from what was measured, and the file they are written to."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from gpumemnet.cudnn.conv_workspace import Plan
from gpumemnet.errors import SetupError
from gpumemnet.fit import convolutions, segments
from gpumemnet.fit.parts import CONVOLUTIONS
from gpumemnet.gpus import NAMES
from gpumemnet.names import ConvPass
from gpumemnet.rules import numbers
from gpumemnet.rules.numbers import COLUMNS, UNIT_BYTES, Rule, Status
from gpumemnet.units import MIB

Seen = Mapping[str, Mapping[str, Any]]
"""What each part of the measurement told, by the part's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What a measurement comes to.

    Attributes:
        rules: Rows for the site's table.
        notes: One line for each part that told nothing usable, and for numbers that are only known as a range.
    """

    rules: tuple[Rule, ...]
    notes: tuple[str, ...]


def gpu_key(product: str) -> str:
    """Return the name of a type of GPU in the table: ours if we have it, else the product's without the maker.

    Args:
        product: As the driver names it: "NVIDIA A100-SXM4-40GB".
    """
    wanted = product.lower()
    return next((name for name in NAMES if name in wanted), wanted.removeprefix("nvidia ").strip())


def rows(seen: Seen, *, found_by: str) -> Table:
    """Turn a measurement into rows.

    Args:
        seen: What the parts told; parts that failed are left out.
        found_by: For the column of that name: command and date.

    Returns:
        The rows; a number that was not measured has none, and keeps what our table says.

    Raises:
        SetupError: The part "device" is missing, without which no row has a name.
    """
    try:
        about = seen["device"]
        gpu, releases = gpu_key(about["gpu"]), _releases(about)
    except (KeyError, TypeError) as exc:
        raise SetupError(f"the GPU was not told ({exc!r}); nothing can be fitted") from exc
    known = {(rule.library, rule.name): rule for rule in numbers.read_table(numbers.TABLE)}
    made: list[Rule] = []
    notes: list[str] = []
    for library, needs, tell in _TELLERS:
        if not all(name in seen for name in needs):
            notes.append(f"{library}: not measured ({', '.join(n for n in needs if n not in seen)})")
            continue
        try:
            told, more = tell(seen)
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
            for name, value in told.items()
        ]
    return Table(rules=tuple(made), notes=tuple(notes))


def as_text(rules: Iterable[Rule]) -> str:
    """Write rows as a table.

    Args:
        rules: The rows; sizes that are no whole number of their unit are rounded up.
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
    """Return a site's table with new rows: those of the GPU measured last come first, as profiles follow the first.

    Args:
        old: The table as it is.
        new: What was measured now; of two rows for one number it wins.
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
        "cudnn-rnn": str(about["cudnn"]),
        "mps": str(about["driver"]),
    }


_Told = tuple[dict[str, int], list[str]]


def _device(seen: Seen) -> _Told:
    return {name: int(seen["device"][name]) for name in ("multiprocessors", "threads")}, []


def _process(seen: Seen) -> _Told:
    conv, dense, convs_only = (_bytes(seen[name]["base_bytes"]) for name in ("conv", "dense", "convs_only"))
    told = {"memory": _bytes(seen["device"]["memory_bytes"]), "conv_base": conv, "base": dense}
    if convs_only < conv:
        return told | {"without_cublas": conv - convs_only}, []
    return told, ["process: a network of convolutions alone holds as much as others here"]


def _bytes(value: int | Sequence[int]) -> int:
    """Take the middle of several readings, in whole MiB, upward."""
    middle = median(value) if isinstance(value, Sequence) else value
    if middle <= 0:
        raise SetupError(f"a process cannot hold {middle} bytes")
    return -(-int(middle) // MIB) * MIB


def _allocator(seen: Seen) -> _Told:
    pairs = [(int(request), int(segment)) for request, segment in seen["segments"]["segments"]]
    return segments.fit(pairs, numbers.of("allocator", numbers.REFERENCE_GPU)), []


def _cublas(seen: Seen) -> _Told:
    told = seen["cublas"]
    return {
        "handle_workspace": _bytes(told["handle_bytes"]),
        "workspaces": _bytes(told["both_threads_bytes"]),
        "lt_handle_workspace": _bytes(told["lt_bytes"]),
    }, []


def _recurrent(seen: Seen) -> _Told:
    values: dict[str, list[float]] = {}
    for kind, directions, layers, elements, kept in seen["recurrent"]["reserves"]:
        values.setdefault(f"{kind}_{directions}", []).append(kept / (layers * elements))
    return {name: max(1, round(median(found))) for name, found in values.items()}, []


def _cudnn(seen: Seen) -> _Told:
    prior = dict(numbers.of("cudnn", numbers.REFERENCE_GPU))
    prior["part_blocks_fp32"] = int(seen["device"]["multiprocessors"])
    samples = [sample(told) for name in CONVOLUTIONS if name in seen for told in seen[name]["convolutions"]]
    if not samples:
        raise SetupError("no convolution ran")
    fitted = convolutions.fit(samples, prior)
    share = convolutions.explained(samples, prior | {name: one.value for name, one in fitted.items()}) / len(
        samples
    )
    notes = [f"cudnn: the rules tell {share:.0%} of {len(samples)} calls within a tenth"]
    notes += [
        f"cudnn: {name} = {one.value}; {one.low} to {one.high} explain as much"
        for name, one in fitted.items()
        if one.decided and one.low < one.high
    ]
    return {
        "part_blocks_fp32": prior["part_blocks_fp32"],
        **{name: one.value for name, one in fitted.items() if one.decided},
    }, notes


def sample(told: Mapping[str, Any]) -> convolutions.Sample:
    """Read one pass of a convolution as the measuring program writes it.

    Args:
        told: "kind", "x" and "y" (batch, channels, sides), "area", "groups", "item_bytes", "strided", "borrowed_bytes".

    Raises:
        KeyError: One of them is missing.
        ValueError: The kind is none of ours.
    """
    plan = Plan(
        kind=ConvPass(told["kind"]),
        x=tuple(told["x"]),
        y=tuple(told["y"]),
        area=told["area"],
        groups=told["groups"],
        item_bytes=told["item_bytes"],
        strided=told["strided"],
    )
    return convolutions.Sample(plan, told["borrowed_bytes"])


def _mps(seen: Seen) -> _Told:
    return {name: _bytes(seen["mps"][f"{name}_bytes"]) for name in ("server", "client")}, []


_TELLERS: tuple[tuple[str, tuple[str, ...], Callable[[Seen], _Told]], ...] = (
    ("device", ("device",), _device),
    ("process", ("conv", "dense", "convs_only"), _process),
    ("allocator", ("segments",), _allocator),
    ("cublas", ("cublas",), _cublas),
    ("cudnn-rnn", ("recurrent",), _recurrent),
    ("cudnn", (), _cudnn),
    ("mps", ("mps",), _mps),
)
"""Library, the parts that tell of it, and how."""
