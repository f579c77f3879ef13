"""Parse tables of the torchinfo package: a tree of modules in running order, with any columns."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpumemnet.errors import SummaryError
from gpumemnet.names import Source
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.formats import text
from gpumemnet.summaries.texts.records import RECREATE, Layer, ModelSummary, Shape
from gpumemnet.summaries.texts.widths import of_channels
from gpumemnet.units import MEGA

ContainerPath = tuple[tuple[str, str], ...]
"""Containers around a row, from the outside in, as (class name, name)."""
_TREE = "│├└─|+ \t"
_NO_SHAPES = (
    "the table shows no shapes, so more is booked than needed; print it with torchinfo.summary(model, input_size=...), "
    "or input_data=... for a dictionary"
)
_NAME = re.compile(
    r"(?P<cls>[A-Za-z_][\w.<>]*)(?: \((?P<var>[^()]*)\))?(?:: (?P<depth>\d+)(?:-(?P<index>\d+))?)?(?=\s|$)"
)
_CELL = re.compile(
    r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]|\(recursive\)|--|\([\d,]+\)|\d+(?:\.\d+)?%|True|False|Partial|[\d,]+"
)
_PARAMETER = re.compile(r"(\d+\.[\w.]+|weight|bias)(?=\s|$)")
_PARAMETER_COUNT = re.compile(r"[├└]─[\d,]+(?=\s|$)")
"""Name and count of a single parameter (verbose=2)."""
_COLUMNS = {
    "Kernel Shape": "kernel",
    "Groups": "groups",
    "Input Shape": "input",
    "Output Shape": "output",
    "Param #": "params",
    "Param %": "share",
    "Mult-Adds": "macs",
    "Trainable": "trainable",
}


class _TorchinfoRow(NamedTuple):
    """One line of the table before the tree is known."""

    cls: str
    name: str
    depth: int
    cells: dict[str, str]
    line: int
    numbered: bool


def parse(source: str, *, path: str) -> ModelSummary:
    """Parse a torchinfo table; arguments as for `detect.parse_text`.

    Returns:
        The summary; containers that the depth limit cut off have `is_block`.

    Raises:
        SummaryError: The table is malformed, empty or cut off.
    """
    columns: list[str] = []
    numbered = False
    rows: list[_TorchinfoRow] = []
    foreign: list[int] = []
    totals: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for number, line in text.lines(source):
        if line.lstrip().startswith("Layer (type"):
            columns, numbered = _columns(line), "depth-idx" in line
        elif total := text.parse_total(line):
            totals.setdefault(*total)
        elif totals:
            sizes = text.parse_sizes(line, unit=MEGA) | sizes
        elif columns and line.strip().strip("="):
            if rows and text.is_foreign(line, _TREE.strip()):
                foreign.append(number)
                continue
            row = _row(line, columns, path=path, line=number)
            # Rows of single parameters (verbose=2) have no number; the row of their module has the count.
            if row is not None and (row.numbered or not numbered or not rows):
                rows.append(row)
        if len(rows) > text.MAX_LAYERS:
            raise SummaryError(path=path, line=number, problem="too many rows", fix=RECREATE)
    if not rows:
        raise SummaryError(path=path, problem="the table has no layers", fix=RECREATE)
    _check(columns, path=path)
    if "total" not in totals:
        raise SummaryError(path=path, problem="the table is cut off before 'Total params'", fix=RECREATE)
    return ModelSummary(
        format=Source.TORCHINFO,
        layers=tuple(_layers(rows, path=path)),
        batch_size=_batch_size(rows, path=path),
        total_params=totals["total"],
        trainable_params=totals.get("trainable"),
        output_bytes=sizes.get("pass"),
        input_bytes=sizes.get("input"),
        warnings=(
            *(() if {"input", "output"} & set(columns) else (_NO_SHAPES,)),
            *text.left_out(foreign),
        ),
    )


def _check(columns: list[str], *, path: str) -> None:
    """Refuse a table whose columns omit half of what training keeps: it would look like a far smaller model."""
    missing = "Param #" if "params" not in columns else "Output Shape"
    if "params" not in columns or ("input" in columns and "output" not in columns):
        fix = (
            'print it with col_names=["input_size", "output_size", "num_params", "kernel_size", "mult_adds"]'
        )
        raise SummaryError(path=path, problem=f"the table has no column '{missing}'", fix=fix)


def _columns(header: str) -> list[str]:
    found = [(header.index(title), key) for title, key in _COLUMNS.items() if title in header]
    return [key for _, key in sorted(found)]


def _row(row: str, columns: list[str], *, path: str, line: int) -> _TorchinfoRow | None:
    body = row.lstrip(_TREE)
    match = _NAME.match(body)
    if _PARAMETER.match(body) or ("─" in body and _PARAMETER_COUNT.search(body)):
        return None
    if not match:
        if body.startswith(("...", "…")):
            raise SummaryError(path=path, line=line, problem="layers are left out here", fix=RECREATE)
        raise SummaryError(
            path=path, line=line, problem=f"not a torchinfo row: '{row.strip()[:40]}'", fix=RECREATE
        )
    cells = _CELL.findall(body[match.end() :])
    if match.group("depth"):
        depth = int(match.group("depth")[:6])
    else:
        prefix = row[: len(row) - len(body)]
        depth = prefix.count("│") + prefix.count("|") + any(mark in prefix for mark in "├└+")
    return _TorchinfoRow(
        cls=match.group("cls"),
        name=match.group(0),
        depth=depth,
        cells=dict(zip(columns, cells, strict=False)),
        line=line,
        numbered=match.group("depth") is not None,
    )


def _layers(rows: list[_TorchinfoRow], *, path: str) -> list[Layer]:
    layers: list[Layer] = []
    deepest = max(row.depth for row in rows)
    whole = _without_rows_inside(rows, deepest)
    stack: list[_TorchinfoRow] = []
    around: list[ContainerPath] = [()]  # path inside each of them
    for index, row in enumerate(rows):
        while stack and stack[-1].depth >= row.depth:
            around.pop()
            layers += _end(stack.pop(), around[-1], path=path)
        has_children = index + 1 < len(rows) and rows[index + 1].depth > row.depth
        kind = kinds.canonical(row.cls)
        where = around[-1]
        if not has_children or _is_layer(row):
            cut_off = kinds.may_hold_layers(kind) and row.depth == deepest and row.cls not in whole
            layers.append(_layer(row, kind, where, cut_off=cut_off, path=path))
        elif own := text.parse_count(row.cells.get("params", "--")):
            layers.append(Layer(kind="parameter", name=row.name, path=where, params=own, line=row.line))
        if has_children:
            stack.append(row)
            around.append((*where, (row.cls, row.name)))
    while stack:
        around.pop()
        layers += _end(stack.pop(), around[-1], path=path)
    return layers


def _without_rows_inside(rows: list[_TorchinfoRow], deepest: int) -> set[str]:
    """Return the classes without inner modules: no row is inside one although the depth limit would show it."""
    depths = [*(row.depth for row in rows), 0]
    above = [at for at, row in enumerate(rows) if row.depth < deepest]
    holders = {rows[at].cls for at in above if depths[at + 1] > rows[at].depth}
    return {rows[at].cls for at in above} - holders


def _is_layer(row: _TorchinfoRow) -> bool:
    """Return whether a module with inner modules is still a layer: a norm with its activation, attention.

    A user's class may be named like a layer (BasicConv2d, Conv2dNormActivation, LSTM): it has no own parameters.
    """
    kind = kinds.canonical(row.cls)
    own = text.parse_count(row.cells.get("params", "--"))
    return kind == "multiheadattention" or (kinds.is_known(kind) and bool(own))


def _end(row: _TorchinfoRow, where: ContainerPath, *, path: str) -> list[Layer]:
    """End a container: its output may be more than its last layer's (a sum, a concatenation)."""
    outputs = text.parse_shapes(row.cells.get("output", ""), path=path, line=row.line)
    kind = kinds.canonical(row.cls)
    if not outputs or not where or kinds.is_container(kind) or _is_layer(row):
        return []
    scales = text.parse_count(row.cells.get("params", "--"))
    args: dict[str, object] = {"own_params": scales} if scales else {}
    return [
        Layer(
            kind=kind,
            name=row.name,
            path=where,
            output_shapes=outputs,
            args=args,
            is_block=True,
            line=row.line,
        )
    ]


def _layer(row: _TorchinfoRow, kind: str, where: ContainerPath, *, cut_off: bool, path: str) -> Layer:
    cells = row.cells
    inputs = text.parse_shapes(cells.get("input", ""), path=path, line=row.line)
    outputs = text.parse_shapes(cells.get("output", ""), path=path, line=row.line)
    count = cells.get("params", "--")
    args: dict[str, object] = {}
    kernel: tuple[Shape, ...] = text.parse_shapes(cells.get("kernel", ""), path=path, line=row.line)
    if kernel:
        args["kernel_size"] = kernel[0]
    elif cells.get("kernel", "").isdigit():
        args["kernel_size"] = int(cells["kernel"][:6])
    shown = "input" in cells or "output" in cells
    layer = Layer(
        kind=kind,
        name=row.name,
        path=where,
        input_shapes=inputs,
        output_shapes=outputs,
        params=text.parse_count(count) or 0,
        trainable=(count == "(recursive)" or count[0] != "(") and cells.get("trainable") != "False",
        args=args,
        is_block=cut_off,
        runs=bool(inputs or outputs) or not shown,
        line=row.line,
    )
    return layer._replace(is_block=False) if cut_off and of_channels(layer) else layer


def _batch_size(rows: list[_TorchinfoRow], *, path: str) -> int | None:
    for row in rows:
        for key in ("input", "output"):
            shapes = text.parse_shapes(row.cells.get(key, ""), path=path, line=row.line)
            if shapes and shapes[0]:
                return shapes[0][0]
    return None
