from __future__ import annotations

import pytest
from paths import SUMMARIES

from gpumemnet.errors import GpuMemNetError, SummaryError
from gpumemnet.profile.build import profile_with_warnings
from gpumemnet.summaries.texts.formats.detect import parse_text
from gpumemnet.training import TrainingSetup

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
        ("residual_no_names.torchinfo.txt", "torchinfo", 8),
        ("residual_batch_dim.torchinfo.txt", "torchinfo", 1),
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


def test_rows_of_single_parameters_are_no_layers() -> None:
    layers = parsed("two_heads_parameters.torchinfo.txt").layers
    assert [(layer.kind, layer.params, layer.trainable) for layer in layers] == [
        ("parameter", 32, True),
        ("linear", 288, True),
        ("linear", 1056, True),
        ("linear", 224, False),
        ("linear", 0, True),  # the shared one again
        ("linear", 132, True),
        ("linear", 165, True),
    ]


def test_several_inputs_and_outputs_are_rows_of_torchsummary() -> None:
    layers = parsed("two_heads.torchsummary.txt").layers
    assert [layer.output_shapes for layer in layers][-2:] == [((None, 4),), ((None, 5),)]
    both = "MultiheadAttention-2  [[-1, 16, 64], [-1, 16, 16]]  0"
    text = (SUMMARIES / "residual.torchsummary.txt").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if "ReLU-3" in line)
    found = parse_text(text.replace(row, both), path="x").layers[2]
    assert found.output_shapes == ((None, 16, 64), (None, 16, 16))


@pytest.mark.parametrize("name", ["named_as_layers.torchinfo.txt", "named_as_layers.repr.txt"])
def test_a_block_that_is_called_as_a_layer_is_no_layer(name: str) -> None:
    layers = [layer for layer in parsed(name).layers if not layer.is_block and layer.kind != "identity"]
    block = ["conv2d", "batchnorm2d", "relu"]
    # A norm that holds its activation has parameters of its own: it is a layer, and its activation another.
    assert [layer.kind for layer in layers] == [*block, *block, "batchnormact2d", "relu", "conv2d"]
    assert sum(layer.params or 0 for layer in layers) == 876


def test_a_model_that_is_called_as_a_layer_is_no_layer() -> None:
    layers = [layer for layer in parsed("lstm.torchinfo.txt").layers if not layer.is_block]
    assert [(layer.kind, layer.params) for layer in layers] == [
        ("embedding", 800),
        ("lstm", 37888),
        ("linear", 3250),
    ]


def test_print_shows_lists_of_parameters_computed_weights_and_repeats_of_repeats() -> None:
    layers = parsed("parametrized.repr.txt").layers
    assert [(layer.kind, layer.params) for layer in layers[:4]] == [
        ("parameter", 9),
        ("parameter", 7),
        ("linear", 34),  # its name holds a space
        ("linear", 136),
    ]
    blocks = [layer for layer in layers if layer.path[1:2] == (("ModuleList", "stages"),)]
    assert len(blocks) == 2 * 4 * 2
    assert len({layer.path for layer in blocks}) == 8


def test_repeated_blocks_of_print_are_unrolled() -> None:
    layers = parsed("gpt2.repr.txt").layers
    assert sum(layer.name == "c_attn" for layer in layers) == 2
    assert next(layer for layer in layers if layer.name == "c_attn").params == 64 * 192 + 192


def test_keras_turns_shapes_to_channels_first() -> None:
    summary = parsed("cnn.keras.txt")
    assert [layer.kind for layer in summary.layers][:3] == ["conv2d", "batchnorm2d", "relu"]
    assert summary.layers[0].output_shapes == ((None, 16, 32, 32),)
    assert summary.total_params == 41482


def test_cells_of_several_lines_are_one_cell() -> None:
    layers = parsed("functional.keras.txt").layers
    assert [(layer.kind, layer.output_shapes[0]) for layer in layers] == [
        ("identity", (None, 3, 32, 32)),
        ("conv2d", (None, 16, 32, 32)),
        ("batchnorm2d", (None, 16, 32, 32)),  # "(BatchNormalizatio…" in the text
        ("relu", (None, 16, 32, 32)),
        ("conv2d", (None, 16, 32, 32)),
        ("identity", (None, 16, 32, 32)),
        ("concatenate", (None, 32, 32, 32)),
        ("convtranspose2d", (None, 8, 64, 64)),
        ("adaptiveavgpool1d", (None, 8)),
        ("linear", (None, 10)),
    ]
    kinds = [layer.kind for layer in parsed("attention.keras.txt").layers]
    assert kinds == ["identity", "embedding", "multiheadattention", "identity", "layernorm", "lstm", "linear"]
    assert parsed("attention.keras.txt").batch_size == 4


def test_a_nested_keras_model_counts_once() -> None:
    layers = parsed("nested.keras.txt").layers
    assert [(layer.kind, layer.params, layer.trainable) for layer in layers] == [
        ("sequential", 0, False),
        ("linear", 55, False),
        ("linear", 30, False),
        ("dropout", 0, True),
        ("linear", 18, True),
    ]


KERAS_2 = """Model: "model"
__________________________________________________________________________________________________
 Layer (type)                Output Shape                 Param #   Connected to
==================================================================================================
 input_1 (InputLayer)        [(None, 32, 32, 3)]          0         []

 conv2d (Conv2D)             (None, 32, 32, 16)           448       ['input_1[0][0]']

 batch_normalization (Batch  (None, 32, 32, 16)           64        ['conv2d[0][0]']
 Normalization)

 add (Add)                   (None, 32, 32, 16)           0         ['conv2d[0][0]',
                                                                     'batch_normalization[0][0]']

 global_average_pooling2d (  (None, 16)                   0         ['add[0][0]']
 GlobalAveragePooling2D)

 dense (Dense)               (None, 10)                   170       ['global_average_pooling2d[0][0]']

==================================================================================================
Total params: 682 (2.66 KB)
Trainable params: 650 (2.54 KB)
Non-trainable params: 32 (128.00 Byte)
__________________________________________________________________________________________________
"""
"""Keras 2's layout as its documentation prints it; TensorFlow is not run here."""


def test_keras_2_breaks_long_names() -> None:
    summary = parse_text(KERAS_2, path="x")
    kinds = ["identity", "conv2d", "batchnorm2d", "identity", "adaptiveavgpool2d", "linear"]
    assert [layer.kind for layer in summary.layers] == kinds
    assert sum(layer.params or 0 for layer in summary.layers) == summary.total_params == 682
    assert summary.layers[0].output_shapes == ((None, 3, 32, 32),)


def test_columns_that_the_terminal_cut_off_are_requested() -> None:
    text = (SUMMARIES / "functional.keras.txt").read_text(encoding="utf-8")
    narrow = "\n".join(line[:40] for line in text.splitlines())
    with pytest.raises(SummaryError, match=r"print it again with model.summary\(line_length=200\)"):
        parse_text(narrow, path="x")


@pytest.mark.parametrize(
    ("name", "known", "unknown"),
    [
        ("residual.torchsummary.txt", "Linear-", "Wombat-"),
        ("residual.torchinfo.txt", "ReLU: ", "Wombat: "),
        ("residual_no_names.torchinfo.txt", "ReLU ", "Wombat "),
        ("residual.repr.txt", "ReLU(", "Wombat("),
        ("residual_annotated.repr.txt", "ReLU(", "Wombat("),
        ("cnn.keras.txt", "(Dropout)", "(Wombat)"),
    ],
)
def test_unknown_layers_are_named_in_every_format(name: str, known: str, unknown: str) -> None:
    text = (SUMMARIES / name).read_text(encoding="utf-8")
    assert known in text
    _, warnings = profile_with_warnings(text.replace(known, unknown), TrainingSetup(batch_size=8))
    assert any("unknown layer" in line for line in warnings), warnings


def test_frozen_layers_are_recognised_by_parentheses() -> None:
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
