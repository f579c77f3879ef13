"""Parse tables of Keras' `model.summary()`: Keras 2 (spaces) and Keras 3 (box drawing), channels last."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpumemnet.errors import SummaryError
from gpumemnet.names import Source
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.formats import text
from gpumemnet.summaries.texts.records import RECREATE, Layer, ModelSummary, Shape
from gpumemnet.summaries.texts.totals import MISSING_SHARE

_NAME = re.compile(r"^(?P<name>[^()]+?)\s*\((?P<cls>[A-Za-z_]\w*…?)\)?$")
_BOX = "│┃"
_RULE = re.compile(r"[├┝┠┡└┗][─━]|[=_]{9}")
"""Separator between two rows of a boxed table; a row may have many lines."""
_LIST = re.compile(r"\(([^()]*)\)")
_KINDS = {
    "dense": "linear",
    "batchnormalization": "batchnorm2d",
    "layernormalization": "layernorm",
    "groupnormalization": "groupnorm",
    "activation": "relu",
    "maxpooling1d": "maxpool1d",
    "maxpooling2d": "maxpool2d",
    "maxpooling3d": "maxpool3d",
    "averagepooling1d": "avgpool1d",
    "averagepooling2d": "avgpool2d",
    "globalaveragepooling1d": "adaptiveavgpool1d",
    "globalaveragepooling2d": "adaptiveavgpool2d",
    "globalmaxpooling2d": "adaptivemaxpool2d",
    "conv2dtranspose": "convtranspose2d",
    "depthwiseconv2d": "conv2d",
    "separableconv2d": "conv2d",
    "zeropadding2d": "zeropad2d",
    "upsampling2d": "upsample",
    "multiheadattention": "multiheadattention",
    "spatialdropout2d": "dropout2d",
    "reshape": "identity",
    "inputlayer": "identity",
    "rescaling": "identity",
    "simplernn": "rnn",
    "add": "identity",
    "concatenate": "concatenate",
    "multiply": "multiply",
}


_WIDER = "print it again with model.summary(line_length=200) and save it unchanged"
_FIX = _WIDER


@dataclass(slots=True)
class _KerasRow:
    """One row of the table: its cells by column, and its depth in nested models (expand_nested)."""

    cells: list[str]
    depth: int
    line: int


def parse(source: str, *, path: str) -> ModelSummary:
    """Parse a Keras table; arguments as for `detect.parse_text`.

    Returns:
        The summary; shapes are converted to channels first.

    Raises:
        SummaryError: The table has no rows or is cut off.
    """
    rows, columns, totals = _table(source, path)
    rows = [row for row in rows if text.parse_count(row.cells[2]) is not None]
    if not rows:
        raise SummaryError(path=path, problem="the table has no layers", fix=_FIX)
    if "total" not in totals:
        raise SummaryError(path=path, problem="the table is cut off before 'Total params'", fix=RECREATE)
    total = totals["total"]
    if (
        "trainable" in totals and "non-trainable" in totals
    ):  # of a trained model it counts the optimizer's, too
        total = min(total, totals["trainable"] + totals["non-trainable"])
    shown_frozen = next((at for at, title in enumerate(columns) if title.startswith("Trai")), None)
    layers = tuple(
        _layer(row, shown_frozen, holds=at + 1 < len(rows) and rows[at + 1].depth > row.depth, path=path)
        for at, row in enumerate(rows)
    )
    counted = sum(layer.params or 0 for layer in layers)
    if total - counted > MISSING_SHARE * total:
        problem = f"its rows show {counted:,} of {total:,} parameters: the others are cut off"
        raise SummaryError(path=path, line=rows[0].line, problem=problem, fix=_WIDER)
    first = next((shape for layer in layers for shape in layer.output_shapes), ())
    return ModelSummary(
        format=Source.KERAS,
        layers=layers,
        batch_size=first[0] if first else None,
        total_params=total,
        trainable_params=totals.get("trainable"),
        warnings=("TensorFlow and JAX keep other tensors than PyTorch, whose rules are applied here",),
    )


def _table(source: str, path: str) -> tuple[list[_KerasRow], list[str], dict[str, int]]:
    """Return the rows of the table, the titles of its columns, and its totals.

    Raises:
        SummaryError: It has too many rows.
    """
    rows: list[_KerasRow] = []
    totals: dict[str, int] = {}
    columns: list[str] = []
    open_row = False
    for number, line in text.lines(source):
        if total := text.parse_total(line):
            totals.setdefault(*total)
        elif "Layer (type)" in line:
            columns = _cells(line)
        elif columns and not totals:
            if _RULE.search(line):
                open_row = False
            elif cells := _cells(line):
                if open_row or _continues(cells, rows, boxed=line.strip()[0] in _BOX):
                    _join(rows[-1].cells, cells)
                elif len(cells) > 2:
                    rows.append(_KerasRow(cells=cells, depth=_depth(line), line=number))
                    open_row = line.strip()[0] in _BOX
        if len(rows) > text.MAX_LAYERS:
            raise SummaryError(path=path, line=number, problem="too many rows", fix=RECREATE)
    return rows, columns, totals


def _cells(line: str) -> list[str]:
    if set(line) & set(_BOX):
        return [cell.strip(" └") for cell in re.split(f"[{_BOX}]", line.strip().strip(_BOX))]
    words = line.strip().strip("|").strip()
    if not words or set(words) <= set("=_-─━ ¯|"):
        return []
    cells = re.split(r"\s{2,}", words)
    if joined := re.match(r"(\S+ \([^()\s]+\)?) ([\[({].*|multiple.*|\?.*)$", cells[0]):
        cells[:1] = joined.groups()  # a name as long as its column
    if len(cells) > 1 and (cut := re.match(r"(\S.*) (\d[\d,]*)$", cells[1])) and ")" not in cut[2]:
        cells[1:2] = cut.groups()  # a shape as long as its column
    return cells


def _depth(line: str) -> int:
    """Return the depth of a row: Keras 3 indents it after a corner, Keras 2 draws a bar for each level."""
    inside = line.strip().strip(_BOX)
    corner = inside.find("└")
    return (
        corner if corner > 0 else len(inside) - len(inside.lstrip("| ").lstrip()) if inside[:1] == "|" else 0
    )


def _continues(cells: list[str], rows: list[_KerasRow], *, boxed: bool) -> bool:
    """Return whether an unboxed line continues a row: the rest of its name, class or connections."""
    return bool(rows) and not boxed and (len(cells) < 3 or text.parse_count(cells[2]) is None)


def _join(cells: list[str], more: list[str]) -> None:
    """Add a line to a row's cells; without boxes only the name can be separated from the rest."""
    if len(more) < len(cells) and not cells[0].endswith(")"):
        cells[0] += f" {more[0]}" if more[0].startswith("(") else more[0]
        return
    for at, word in enumerate(more[: len(cells)]):
        if word and len(more) == len(cells):
            cells[at] = f"{cells[at]} {word}"


def _layer(row: _KerasRow, trainable_column: int | None, *, holds: bool, path: str) -> Layer:
    cells = row.cells
    match = _NAME.match(cells[0])
    cls = (match.group("cls") if match else cells[0]).lower()
    if cls not in _KINDS and not kinds.is_known(cls):
        whole = cls.rstrip("…)")  # cut off by the column's width
        cls = next((full for full in (*_KINDS, *kinds.KINDS) if full.startswith(whole)), cls)
    kind = _KINDS.get(cls, cls)
    shown = cells[1] if ")" in cells[1] else f"{cells[1]})"
    if "(" in cells[1] and (")" not in cells[1] or "…" in cells[1]) and cls != "inputlayer":
        raise SummaryError(path=path, line=row.line, problem="its shape is cut off", fix=_WIDER)
    shapes = tuple(
        _channels_first(shape)
        for body in _LIST.findall(shown)
        for shape in text.parse_shapes(f"[{body.rstrip(', ')}]", path=path, line=row.line)
    )
    frozen = trainable_column is not None and cells[trainable_column : trainable_column + 1] == ["N"]
    return Layer(
        kind=kind,
        name=match.group("name").strip() if match else cells[0],
        output_shapes=shapes,
        params=0 if holds else text.parse_count(cells[2]),
        trainable=not frozen,
        is_block=not kinds.is_known(kind) and cls in ("functional", "sequential", "model"),
        line=row.line,
    )


def _channels_first(shape: Shape) -> Shape:
    return (shape[0], shape[-1], *shape[1:-1]) if len(shape) > 3 else shape
