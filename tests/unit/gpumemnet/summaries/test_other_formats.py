"""Formats that people paste and RAD does not read are named, with what to save instead."""

from __future__ import annotations

import pytest

from gpumemnet.errors import SummaryError
from gpumemnet.profile.build import profile_with_warnings
from gpumemnet.summaries.texts.other_formats import FORMATS
from gpumemnet.training import TrainingSetup

SETUP = TrainingSetup(batch_size=8, stated=frozenset({"batch_size"}))
TEXTS = {
    "fastai": (
        "Layer (type)         Output Shape         Param #    Trainable \n====\n"
        "ReLU  [64, 112, 112]  0  False \n"
    ),
    "YOLO": (
        "                   from  n    params  module                 arguments\n"
        "  0   -1  1   928  Conv  [3, 32, 3, 2]\n"
    ),
    "torchsummaryX": (
        "====\n       Kernel Shape     Output Shape   Params  Mult-Adds\nLayer\n"
        "0_conv1  [1, 10, 5, 5]  [1, 10, 24, 24]  260\n"
    ),
    "torch_geometric": (
        "+---+\n| Layer    | Input Shape    | Output Shape   | #Param   |\n|----------+----------|\n"
        "| GCN | [9, 4] |\n"
    ),
    "fvcore": (
        "| module      | #parameters or shape   | #flops   |\n"
        "|:------------|:-----------------------|:---------|\n| model | 1.2M |\n"
    ),
    "thop": ("[INFO] Register count_convNd() for <class 'torch.nn.modules.conv.Conv2d'>.\n"),
    "Flax": (
        "┃ path    ┃ module ┃ inputs        ┃ outputs       ┃ params ┃\n"
        "│ Dense_0 │ Dense  │ float32[8,16] │ float32[8,4] │ 68 │\n"
    ),
    "Haiku": ("+----+\n| Module | Config | Module params | Input |\n| mlp | MLP() | 10 | f32[8] |\n"),
    "MXNet": (
        "Sequence of layers\n  Parameters in forward computation graph, duplicate included\n"
        "   Total params: 10\n"
    ),
    "paddle": (
        " Layer (type)       Input Shape          Output Shape         Param #\n====\n"
        " Conv2D-1  [[1, 1, 28, 28]]  [1, 6, 28, 28]  60\n"
    ),
    "not built": (
        'Model: "m"\n Layer (type)  Output Shape  Param #\n====\n lstm (LSTM)  ?  0 (unbuilt)\n====\n'
        "Total params: 0\n"
    ),
    "Markdown": ("| layer | size |\n|---|---:|\n| conv | 3x64 |\n"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_format_is_named_with_a_way_out(name: str) -> None:
    with pytest.raises(SummaryError) as caught:
        profile_with_warnings(TEXTS[name], SETUP)
    assert name in str(caught.value) and "not a model summary" not in str(caught.value)
    assert any(way in str(caught.value) for way in ("rad-estimate --save", "#RAD memory=", "model.build("))


def test_every_mark_is_searched_in_time_that_rises_with_the_text() -> None:
    import re

    for each in FORMATS:
        for letter in " |-1K:":
            assert re.search(each.mark, letter * 20_000) is None


def test_an_empty_sequential_is_no_unknown_layer() -> None:
    text = (
        "Net(\n  (c): Conv2d(3, 64, kernel_size=(3, 3), stride=(1, 1))\n  (shortcut): Sequential()\n"
        "  (fc): Linear(in_features=64, out_features=10, bias=True)\n)\n"
    )
    _, warnings = profile_with_warnings(text, SETUP)
    assert not [line for line in warnings if "unknown layer" in line]
