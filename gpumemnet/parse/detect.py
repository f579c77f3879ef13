"""Which format a summary text is in, told from its own marks."""

from __future__ import annotations

import re
from itertools import islice

from gpumemnet.errors import SummaryError
from gpumemnet.parse import keras, module_repr, text, torchinfo, torchsummary
from gpumemnet.summary import ModelSummary

_INDEXED_ROW = re.compile(r"^\s*\S.{0,200}?-\d+ +\[.{0,400}\] +[\d,]+\s*$")
_ROWS_LOOKED_AT = 50


def parse_text(source: str, *, path: str) -> ModelSummary:
    """Parse a model summary in any known format.

    Args:
        source: The whole text.
        path: File, for messages.

    Returns:
        The parsed summary.

    Raises:
        SummaryError: The text is in no known format, or broken.
    """
    if not source.strip():
        raise SummaryError(path=path, problem="the file is empty", fix="print the model's summary into it")
    shown = text.lines(source)
    head = next((line for _, line in shown if "Layer (type" in line[:40]), "")
    if head:
        rows = [line for _, line in islice(shown, _ROWS_LOOKED_AT)]
        if "Layer (type)" in head and any(map(_INDEXED_ROW.match, rows)):
            return torchsummary.parse(source, path=path)
        if keras.looks_like(head):
            return keras.parse(source, path=path)
        return torchinfo.parse(source, path=path)
    if module_repr.looks_like(source):
        return module_repr.parse(source, path=path)
    raise SummaryError(
        path=path,
        problem="not a model summary",
        fix="save the text of torchinfo.summary(), torchsummary.summary(), print(model) or Keras model.summary()",
    )
