"""Modules of `print(model)` in the order in which they run: the text has them in the order of definition."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from paths import SUMMARIES

from gpumemnet.summaries.shapes.run_order import arrange
from gpumemnet.summaries.texts.formats.detect import parse_text
from gpumemnet.summaries.texts.records import Layer

POST_NORM = """Net(
  (layer): TransformerEncoderLayer(
    (self_attn): MultiheadAttention(
      (out_proj): NonDynamicallyQuantizableLinear(in_features=8, out_features=8, bias=True)
    )
    (linear1): Linear(in_features=8, out_features=32, bias=True)
    (dropout): Dropout(p=0.1, inplace=False)
    (linear2): Linear(in_features=32, out_features=8, bias=True)
    (norm1): LayerNorm((8,), eps=1e-05, elementwise_affine=True)
    (norm2): LayerNorm((8,), eps=1e-05, elementwise_affine=True)
    (dropout1): Dropout(p=0.1, inplace=False)
    (dropout2): Dropout(p=0.1, inplace=False)
  )
)
"""
GATED = """Net(
  (mlp): LlamaMLP(
    (gate_proj): Linear(in_features=8, out_features=32, bias=False)
    (up_proj): Linear(in_features=8, out_features=32, bias=False)
    (down_proj): Linear(in_features=32, out_features=8, bias=False)
    (act_fn): SiLU()
  )
)
"""
RESIDUAL = """Net(
  (block): BasicBlock(
    (conv1): Conv2d(8, 8, kernel_size=(3, 3), padding=(1, 1), bias=False)
    (bn1): BatchNorm2d(8)
    (relu): ReLU(inplace=True)
    (conv2): Conv2d(8, 8, kernel_size=(3, 3), padding=(1, 1), bias=False)
    (bn2): BatchNorm2d(8)
    (downsample): Sequential(
      (0): Conv2d(8, 8, kernel_size=(1, 1), bias=False)
      (1): BatchNorm2d(8)
    )
  )
)
"""
LISTED = """Sequential(
  (0): ReLU()
  (1): Linear(in_features=8, out_features=8, bias=True)
  (2): LayerNorm((8,), eps=1e-05, elementwise_affine=True)
  (3): Linear(in_features=8, out_features=2, bias=True)
)
"""


def layers(text: str) -> tuple[Layer, ...]:
    return parse_text(text, path="x").layers


def order(text: str) -> list[str]:
    return [layer.name for layer in arrange(layers(text))]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (GATED, ["gate_proj", "act_fn", "up_proj", "down_proj"]),
        (RESIDUAL, ["conv1", "bn1", "relu", "conv2", "bn2", "0", "1", "relu"]),
        (LISTED, ["0", "1", "2", "3"]),
    ],
    ids=["gated feed-forward", "residual block", "Sequential"],
)
def test_a_block_runs_in_its_own_order(text: str, names: list[str]) -> None:
    assert order(text) == names


def test_attention_comes_before_the_feed_forward_that_is_defined_around_it() -> None:
    found = order(POST_NORM)
    named = ("norm1", "self_attn", "dropout1", "norm2", "linear1", "dropout", "linear2", "dropout2")
    places = [found.index(name) for name in named]
    assert places == sorted(places)


@pytest.mark.parametrize("path", sorted(SUMMARIES.glob("*.repr.txt")), ids=lambda path: path.name)
def test_only_the_dropout_of_fused_scores_is_left_out_and_only_activations_run_twice(path: Path) -> None:
    printed = {layer.line: layer for layer in layers(path.read_text(encoding="utf-8"))}
    run = Counter(layer.line for layer in arrange(list(printed.values())))
    assert {printed[line].kind for line in printed.keys() - run.keys()} <= {"dropout"}
    assert {printed[line].kind for line, times in run.items() if times > 1} <= {"relu"}
