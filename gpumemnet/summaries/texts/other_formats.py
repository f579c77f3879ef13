"""Table of printed formats that are not read: their mark, their name, and what to save instead."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpumemnet.errors import SummaryError
from gpumemnet.summaries.texts.records import BY_HAND, TRACE

_TORCHINFO = "save the text of torchinfo.summary(model, input_size=(64, 3, 224, 224), depth=99)"
_BY_HAND = f"RAD reads models of PyTorch and Keras alone; {BY_HAND}"
_BOTH = f"{_TORCHINFO}, or {TRACE}"


class Format(NamedTuple):
    """One format.

    Attributes:
        mark: What only its texts contain.
        name: Its name, for the message.
        fix: What to do.
        misread: Whether it is otherwise taken for another format.
    """

    mark: str
    name: str
    fix: str
    misread: bool = False


FORMATS = (
    Format(
        r"Layer \(type\) +Output Shape +Param # +Trainable\b",
        "a table of fastai's learn.summary()",
        f"{_TORCHINFO.replace('(model', '(learn.model')}, or {TRACE}",
        misread=True,
    ),
    Format(
        r"\bfrom +n +params +module +arguments",
        "the layer table of Ultralytics YOLO, which shows no activations",
        "trace the training command: rad-estimate --save m.rad -- yolo train data=coco8.yaml model=yolo11n.yaml",
    ),
    Format(r"Kernel Shape +Output Shape +Params", "a table of torchsummaryX", _BOTH),
    Format(
        r"\| *Layer *\| *Input Shape *\| *Output Shape *\| *#Param",
        "a table of torch_geometric.nn.summary()",
        TRACE,
    ),
    Format(
        r"\| *(?:module|name) *\| *#(?:parameters|elements) or shape",
        "a table of fvcore, which shows no activations",
        _BOTH,
    ),
    Format(
        r"#params: [\d.]+[KMGTB]?, #flops: ",
        "a text of fvcore, which changes the arguments of layers",
        _BOTH,
        misread=True,
    ),
    Format(
        r"Register (?:count_\w+|zero_ops)\(\) for ", "the messages of thop, which name no layer's size", _BOTH
    ),
    Format(
        r"DeepSpeed Flops Profiler|\d% latency\b",
        "a profile of DeepSpeed, which changes the arguments of layers",
        _BOTH,
        misread=True,
    ),
    Format(
        r"\d% (?:Params|MACs|FLOPs)\b",
        "a text of ptflops or calflops, which changes the arguments of layers",
        _BOTH,
        misread=True,
    ),
    Format(r"\(\w+\): \w+\((?:None|\d+) -> \d", "a model of MXNet Gluon", _BY_HAND, misread=True),
    Format(r"data_format=N[CDHWL]{2,4}\b|, dtype=float32\)", "a model of Paddle", _BY_HAND, misread=True),
    Format(
        r"[|┃] *path *[|┃] *(?:module|outputs|inputs) *[|┃]|[|┃] *Module *[|┃] *Config *[|┃]",
        "a table of Flax or Haiku",
        _BY_HAND,
    ),
    Format(
        r"Parameters in forward computation graph, duplicate included", "a table of MXNet Gluon", _BY_HAND
    ),
    Format(
        r"Layer \(type\) +Input Shape +Output Shape +Param #",
        "a table of paddle.summary()",
        _BY_HAND,
        misread=True,
    ),
    Format(
        r"\(unbuilt\)",
        "the table of a Keras model that is not built yet",
        "call model.build((64, 224, 224, 3)), with the batch's shape, before model.summary()",
    ),
    Format(
        r"(?m)^ *\|.*\| *\n *\|(?: *:?-+:? *\|)+ *$",
        "a Markdown table",
        f"save what the program printed: {_BOTH}",
    ),
)
"""The first that matches counts."""


def check(text: str, *, path: str, parsed: bool) -> None:
    """Refuse a text in one of these formats.

    Args:
        text: The text.
        path: File, for messages.
        parsed: Whether it could be parsed; then only the formats that are mistaken for another are refused.

    Raises:
        SummaryError: It is in such a format.
    """
    for each in FORMATS:
        if (each.misread or not parsed) and re.search(each.mark, text):
            raise SummaryError(path=path, problem=each.name, fix=each.fix)
