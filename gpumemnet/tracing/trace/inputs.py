"""The inputs of a traced model, as typed: `128x3x224x224`, `input_ids=BxS:int64`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpumemnet.errors import TraceError
from gpumemnet.records import frozen
from gpumemnet.training import TrainingSetup

DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool")
_INPUT = re.compile(r"(?:([A-Za-z_]\w*)=)?([0-9BSbs][0-9BSbsx×*,]*)(?::([a-z0-9]+))?")
MAX_ELEMENTS = 1 << 50
"""More than any GPU holds, so a typing error."""


@frozen
class InputSpec:
    """One input.

    Attributes:
        name: Argument name in the model's forward or the loss; None for a positional one.
        shape: All dimensions, batch first.
        dtype: Name in `torch`.
    """

    name: str | None
    shape: tuple[int, ...]
    dtype: str


def parse_inputs(texts: Sequence[str], setup: TrainingSetup) -> tuple[InputSpec, ...]:
    """Parse the inputs.

    Args:
        texts: "[name=]SHAPE[:dtype]" each; in SHAPE, B is the setup's batch size and S its sequence length.
        setup: Supplies B and S.

    Raises:
        TraceError: A text is not an input, or needs a number that the setup lacks.
    """
    if not texts:
        raise TraceError("no input given; give the shape of each input, as in --input 128x3x224x224")
    specs = tuple(_parse(text, setup) for text in texts)
    names = [spec.name for spec in specs if spec.name is not None]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise TraceError(f"input '{repeated}' is given twice; give each input once")
    return specs


def _parse(text: str, setup: TrainingSetup) -> InputSpec:
    match = _INPUT.fullmatch(text.strip())
    if match is None:
        raise TraceError(
            f"input '{text[:60]}' is not [name=]SHAPE[:dtype]; write it as in input_ids=8x512:int64"
        )
    name, shape_text, dtype = match.groups()
    dtype = dtype or "float32"
    if dtype not in DTYPES:
        raise TraceError(f"input '{text[:60]}': unknown dtype '{dtype}'; known: {', '.join(DTYPES)}")
    shape = tuple(_dimension(part, text, setup) for part in re.split(r"[x×*,]", shape_text))
    elements = 1
    for size in shape:
        elements *= size
    if not 0 < elements <= MAX_ELEMENTS:
        raise TraceError(f"input '{text[:60]}' has {elements} elements; check its shape")
    return InputSpec(name=name, shape=shape, dtype=dtype)


def _dimension(part: str, text: str, setup: TrainingSetup) -> int:
    if part.isdigit() and len(part) < 16:
        return int(part)
    named = {"B": ("--batch-size", setup.batch_size), "S": ("--seq-len", setup.seq_len)}.get(part.upper())
    if named is None:
        raise TraceError(f"input '{text[:60]}': '{part}' is no dimension; use numbers, B or S")
    if named[1] is None:
        raise TraceError(f"input '{text[:60]}' uses {part}, but no {named[0]} is given; add it")
    return named[1]
