"""Tables of Keras' `model.summary()`: Keras 2 (spaces) and Keras 3 (box drawing), channels last."""

from __future__ import annotations

import re

from gpumemnet import kinds
from gpumemnet.errors import SummaryError
from gpumemnet.parse import text
from gpumemnet.summary import Layer, ModelSummary, Shape

_NAME = re.compile(r"^(?P<name>[^()]+?)\s*\((?P<cls>[A-Za-z_]\w*)\)?$")
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


def parse(source: str, *, path: str) -> ModelSummary:
    """Parse a Keras table.

    Args:
        source: The whole text.
        path: File, for messages.

    Returns:
        The summary; shapes are turned to channels first.

    Raises:
        SummaryError: The table has no rows or is cut off.
    """
    rows: list[tuple[int, list[str]]] = []
    totals: dict[str, int] = {}
    started = False
    for number, line in text.lines(source):
        started = started or "Layer (type)" in line
        if total := text.parse_total(line):
            totals.setdefault(*total)
        elif started and not totals and "Layer (type)" not in line:
            cells = _cells(line)
            if rows and cells and cells[0].startswith("(") and not any(cells[1:]):
                rows[-1][1][0] += " " + cells[0]  # the class name did not fit beside the layer's name
            elif len(cells) > 2 and text.parse_count(cells[2]) is not None:
                rows.append((number, cells))
        if len(rows) > text.MAX_LAYERS:
            raise SummaryError(path=path, line=number, problem="too many rows", fix=text.RECREATE)
    if not rows:
        raise SummaryError(
            path=path,
            problem="the table has no layers",
            fix="call model.summary(line_length=150) and save it unchanged",
        )
    if "total" not in totals:
        raise SummaryError(path=path, problem="the table is cut off before 'Total params'", fix=text.RECREATE)
    layers = tuple(_layer(cells, path=path, line=number) for number, cells in rows)
    first = next((shape for layer in layers for shape in layer.output_shapes), ())
    return ModelSummary(
        format="keras",
        layers=layers,
        batch_size=first[0] if first else None,
        total_params=totals["total"],
        trainable_params=totals.get("trainable"),
        warnings=("TensorFlow and JAX keep other tensors than PyTorch, whose rules are applied here",),
    )


def _cells(line: str) -> list[str]:
    if set(line) & set("│┃"):
        return [cell.strip() for cell in re.split("[│┃]", line.strip().strip("│┃"))]
    if not line.strip() or set(line.strip()) <= set("=_-─━ "):
        return []
    return re.split(r"\s{2,}", line.strip())


def _layer(cells: list[str], *, path: str, line: int) -> Layer:
    match = _NAME.match(cells[0])
    name = match.group("cls").lower() if match else cells[0].lower()
    if not cells[0].endswith(")") and name not in _KINDS and not kinds.is_known(name):
        name = next((full for full in _KINDS if full.startswith(name)), name)  # cut off by the column's width
    kind = _KINDS.get(name, name)
    shapes = tuple(
        _channels_first(shape)
        for body in _LIST.findall(cells[1] if ")" in cells[1] else f"{cells[1]})")
        for shape in text.parse_shapes(f"[{body.rstrip(', ')}]", path=path, line=line)
    )
    return Layer(
        kind=kind,
        name=match.group("name").strip() if match else cells[0],
        output_shapes=shapes,
        params=text.parse_count(cells[2]),
        is_block=not kinds.is_known(kind) and name in ("functional", "sequential", "model"),
        line=line,
    )


def _channels_first(shape: Shape) -> Shape:
    return (shape[0], shape[-1], *shape[1:-1]) if len(shape) > 3 else shape
