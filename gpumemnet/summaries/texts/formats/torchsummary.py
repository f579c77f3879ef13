"""Parse tables of the torchsummary package: one row per module, after it ran; containers follow their children."""

from __future__ import annotations

import re

from gpumemnet.errors import SummaryError
from gpumemnet.names import Group, Source
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.formats import text
from gpumemnet.summaries.texts.formats.nesting import nested
from gpumemnet.summaries.texts.formats.unlisted import added
from gpumemnet.summaries.texts.records import RECREATE, Layer, ModelSummary
from gpumemnet.units import MIB

_ROW = re.compile(r"^\s*(\S.*?)-(\d+)\s+(\[.*\])\s+([\d,]+)\s*$")


def parse(source: str, *, path: str) -> ModelSummary:
    """Parse a torchsummary table; arguments as for `detect.parse_text`.

    Returns:
        The summary; rows of container classes have `is_block`.

    Raises:
        SummaryError: A row is malformed, or the table has no rows or no totals.
    """
    layers: list[Layer] = []
    totals: dict[str, int] = {}
    foreign: list[int] = []
    in_table = False
    sizes: dict[str, int] = {}
    for number, line in text.lines(source):
        if in_table and (match := _ROW.match(line)):
            layers.append(_row(match, path=path, line=number))
        elif line.lstrip().startswith("Layer (type)"):
            in_table = True
        elif total := text.parse_total(line):
            totals.setdefault(*total)
            in_table = False
        elif totals and not in_table:
            sizes = text.parse_sizes(line, unit=MIB) | sizes
        elif in_table and layers and text.is_foreign(line, "[]"):
            foreign.append(number)
        elif in_table and line.strip().strip("=-_"):
            problem = f"not a torchsummary row: '{line.strip()[:40]}'"
            raise SummaryError(path=path, line=number, problem=problem, fix=RECREATE)
        if len(layers) > text.MAX_LAYERS:
            raise SummaryError(path=path, line=number, problem="too many rows", fix=RECREATE)
    if not layers:
        raise SummaryError(path=path, problem="the table has no layers", fix=RECREATE)
    if "total" not in totals:
        raise SummaryError(path=path, problem="the table is cut off before 'Total params'", fix=RECREATE)
    first = next((shape for layer in layers for shape in layer.output_shapes), ())
    return ModelSummary(
        format=Source.TORCHSUMMARY,
        layers=added(nested(layers)),
        batch_size=first[0] if first else None,
        total_params=totals["total"],
        trainable_params=totals.get("trainable"),
        input_bytes=sizes.get("input"),
        warnings=text.left_out(foreign),
    )


def _row(match: re.Match[str], *, path: str, line: int) -> Layer:
    name, number, shapes, count = match.groups()
    kind = kinds.canonical(name)
    params = text.parse_count(count)
    return Layer(
        kind=kind,
        name=f"{name}-{number}",
        output_shapes=text.parse_shapes(shapes, path=path, line=line),
        params=params,
        is_block=not params and (kinds.may_hold_layers(kind) or _has_weights(kind)),
        line=line,
    )


def _has_weights(kind: str) -> bool:
    """Return whether a library's class is named like a layer with weights; without weights it is a container."""
    return kind not in kinds.KINDS and kinds.group_of(kind) in (Group.CONV, Group.LINEAR)
