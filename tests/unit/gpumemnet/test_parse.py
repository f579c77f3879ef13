from __future__ import annotations

from pathlib import Path

import pytest

from gpumemnet.errors import GpuMemNetError, SummaryError
from gpumemnet.parse.detect import parse_text

SUMMARIES = Path(__file__).parents[2] / "data" / "summaries"
RESIDUAL_PARAMS = 45146


def parsed(name: str):
    return parse_text((SUMMARIES / name).read_text(encoding="utf-8"), path=name)


@pytest.mark.parametrize(
    ("name", "format_name", "batch_size"),
    [
        ("residual.torchsummary.txt", "torchsummary", None),
        ("residual_batch8.torchsummary.txt", "torchsummary", 8),
        ("residual.torchinfo.txt", "torchinfo", 8),
        ("residual_all_columns.torchinfo.txt", "torchinfo", 8),
        ("residual_ascii.torchinfo.txt", "torchinfo", 8),
        ("residual_depth2.torchinfo.txt", "torchinfo", 8),
        ("residual_no_input.torchinfo.txt", "torchinfo", None),
        ("residual.repr.txt", "module_repr", None),
        ("residual_annotated.repr.txt", "module_repr", None),
    ],
)
def test_every_format_of_one_model_has_the_same_parameters(
    name: str, format_name: str, batch_size: int | None
) -> None:
    summary = parsed(name)
    assert summary.format == format_name
    assert summary.batch_size == batch_size
    assert sum(layer.params or 0 for layer in summary.layers) == RESIDUAL_PARAMS


def test_all_columns_give_the_same_layers_as_fewer() -> None:
    plain, full = parsed("residual_ascii.torchinfo.txt"), parsed("residual_all_columns.torchinfo.txt")
    convs = [
        (layer.kind, layer.output_shapes, layer.params) for layer in plain.layers if layer.kind == "conv2d"
    ]
    assert convs == [
        (layer.kind, layer.output_shapes, layer.params) for layer in full.layers if layer.kind == "conv2d"
    ]
    assert full.layers[0].input_shapes == ((8, 3, 64, 64),)


def test_a_module_used_three_times_counts_its_weights_once() -> None:
    summary = parsed("shared.torchinfo.txt")
    linear = [layer for layer in summary.layers if layer.kind == "linear"]
    assert len(linear) == 3
    assert sum(layer.params or 0 for layer in linear) == 32 * 33


def test_repeated_blocks_of_print_are_unrolled() -> None:
    layers = parsed("gpt2.repr.txt").layers
    assert sum(layer.name == "c_attn" for layer in layers) == 2
    assert next(layer for layer in layers if layer.name == "c_attn").params == 64 * 192 + 192


def test_keras_turns_shapes_to_channels_first() -> None:
    summary = parsed("cnn.keras.txt")
    assert [layer.kind for layer in summary.layers][:3] == ["conv2d", "batchnorm2d", "relu"]
    assert summary.layers[0].output_shapes == ((None, 16, 32, 32),)
    assert summary.total_params == 41482


def test_frozen_layers_are_told_by_parentheses() -> None:
    text = (SUMMARIES / "residual.torchinfo.txt").read_text(encoding="utf-8")
    frozen = parse_text(text.replace("2,352", "(2,352)", 1), path="x")
    assert not frozen.layers[0].trainable
    assert frozen.layers[0].params == 2352


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x: the file is empty; print the model's summary into it"),
        ("hello\nworld\n", "x: not a model summary; save the text of"),
        (
            "Net(\n  (a): Linear(in_features=1, out_features=2)\n",
            "x:1: Net( is never closed; the text is cut off",
        ),
        ("Net(\n  (a): ReLU()\n)\n)\n", "x:4: one ')' too many"),
    ],
)
def test_broken_texts_are_named(text: str, message: str) -> None:
    with pytest.raises(SummaryError) as caught:
        parse_text(text, path="x")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", sorted(path.name for path in SUMMARIES.glob("*.txt")))
def test_a_text_cut_anywhere_is_an_error_or_a_summary(name: str) -> None:
    text = (SUMMARIES / name).read_text(encoding="utf-8")
    for at in range(0, len(text), max(len(text) // 40, 1)):
        try:
            assert parse_text(text[:at], path=name).layers
        except GpuMemNetError as exc:
            assert str(exc).startswith(name)


def test_a_row_that_is_no_row_is_named_with_its_line() -> None:
    text = (
        (SUMMARIES / "residual.torchsummary.txt").read_text(encoding="utf-8").replace("ReLU-3", "ReLU 3", 1)
    )
    with pytest.raises(SummaryError, match=r"net\.txt:6: not a torchsummary row: 'ReLU 3"):
        parse_text(text, path="net.txt")
