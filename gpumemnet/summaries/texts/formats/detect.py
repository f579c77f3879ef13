"""Detect the format of a summary text by its marks."""

from __future__ import annotations

import re
from itertools import islice

from gpumemnet.errors import SummaryError
from gpumemnet.summaries.texts.formats import text
from gpumemnet.summaries.texts.formats.clean import clean
from gpumemnet.summaries.texts.formats.single import only_one
from gpumemnet.summaries.texts.records import ModelSummary

_INDEXED_ROW = re.compile(r"^\s*\S.{0,200}?-\d+ +\[.{0,400}\] +[\d,]+\s*$")
_ROWS_LOOKED_AT = 50
_KERAS_HEAD = r"Layer \(type\)[\s│┃|]+Output Shape[\s│┃|]+Param #"
_PMS_HEAD = r"(?:Input|Output) Shape +Param # +Tr\. Param #"
_OTHERS = (
    (
        r"Name {0,80}[|┃] {0,80}Type {0,80}[|┃] {0,80}Params",
        "a table of Lightning, which rounds its numbers and hides levels",
        "trace the script with rad-estimate --save m.rad -- python train.py, or save torchinfo.summary(model, "
        "input_size=...)",
    ),
    (
        _PMS_HEAD,
        "a table of pytorch_model_summary, which hides levels",
        "save torchinfo.summary(model, input_size=..., depth=99)",
    ),
    (
        r"(?ms)\A(?!.*\bLayer ).*^[ \t]*Total params: *[\d,]+",
        "the table's first lines are missing",
        "save it from the line 'Layer (type' on",
    ),
)
"""Marks of texts that are mistaken for a summary: the problem, and what to do."""
_MODULE = re.compile(r"^\s*[A-Za-z_][\w.]*\(")


def parse_text(source: str, *, path: str) -> ModelSummary:
    """Parse a model summary in any known format; only that format's parser is imported.

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
    source = only_one(clean(source), path=path)
    shown = text.lines(source)
    head = above = ""
    for _, line in shown:
        if "Layer (type" in line[:40]:
            head = line
            break
        above = line.strip() or above
    if head and not re.search(_PMS_HEAD, head):
        rows = [line for _, line in islice(shown, _ROWS_LOOKED_AT)]
        if "Layer (type)" in head and any(map(_INDEXED_ROW.match, rows)):
            from gpumemnet.summaries.texts.formats import torchsummary

            return torchsummary.parse(source, path=path)
        # torchinfo without depths and names has Keras' header, between two double lines.
        if "┃" in head or (re.search(_KERAS_HEAD, head) and (not above or above.strip("="))):
            from gpumemnet.summaries.texts.formats import keras

            return keras.parse(source, path=path)
        from gpumemnet.summaries.texts.formats import torchinfo

        return torchinfo.parse(source, path=path)
    first = next((line for _, line in text.lines(source) if line.strip()), "")
    if _MODULE.match(first):
        from gpumemnet.summaries.texts.formats import module_repr

        return module_repr.parse(source, path=path)
    for marks, problem, fix in _OTHERS:
        if re.search(marks, source):
            raise SummaryError(path=path, problem=problem, fix=fix)
    raise SummaryError(
        path=path,
        problem="not a model summary",
        fix="save the text of torchinfo.summary(), torchsummary.summary(), print(model) or Keras model.summary()",
    )
