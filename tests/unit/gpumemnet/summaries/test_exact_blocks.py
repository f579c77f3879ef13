"""Blocks that a depth limit hides, of which the parameters tell exactly what they hold."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import SUMMARIES

from gpumemnet.profile.build import build_profile
from gpumemnet.summaries.collapsed_blocks import bottlenecks, decoders, inverted, stacks
from gpumemnet.summaries.collapsed_blocks.expand import ShownRows, activation_of, expand, shown
from gpumemnet.summaries.collapsed_blocks.token_templates import TokenTemplates, exact_stack
from gpumemnet.summaries.texts.formats.detect import parse_text
from gpumemnet.summaries.texts.model_names import usual_activation
from gpumemnet.summaries.texts.records import Layer
from gpumemnet.training import TrainingSetup


def parameters(layers: Iterable[Layer]) -> int:
    return sum(layer.params or 0 for layer in layers)


@pytest.mark.parametrize(
    ("count", "first", "last", "inside"),
    [
        (896, 32, 16, inverted.InvertedContents(32, 0, 9, 0)),  # MobileNetV2's first block
        (5136, 16, 24, inverted.InvertedContents(96, 1, 9, 0)),  # its second
        (6004, 16, 24, inverted.InvertedContents(96, 1, 9, 4)),  # EfficientNet-B0's second, with its gate
        (5232, 24, 24, inverted.InvertedContents(0, 9, 0, 0)),  # EfficientNetV2-S' first
        (25_632, 24, 48, inverted.InvertedContents(96, 9, 0, 0)),  # its third
        (5233, 24, 24, None),
    ],
)
def test_an_inverted_block_is_known_by_its_parameters(
    count: int, first: int, last: int, inside: inverted.InvertedContents | None
) -> None:
    assert inverted.solve(count, first, last) == inside
    if inside is not None:
        made = inverted.layers(inside, (8, first, 32, 32), (8, last, 16, 16), "silu")
        assert parameters(made) == count


def test_broken_numbers_are_not_tried_for_long() -> None:
    assert inverted.solve(10**15 + 1, 10**9, 10**9) is None
    assert bottlenecks.solve(10**15 + 1, 10**9, 10**9) is None
    assert decoders.solve(10**15 + 1, 10**9, 10**9) is None
    assert stacks.convnext_blocks(10**15 + 1, 10**6) == (0, False)


@pytest.mark.parametrize(
    ("count", "first", "last", "inside"),
    [
        (75_008, 64, 256, bottlenecks.BottleneckContents(64, 64, 0, False, True)),  # ResNet-50's first block
        (70_400, 256, 256, bottlenecks.BottleneckContents(64, 64, 0, False, False)),  # its second
        (63_488, 64, 256, bottlenecks.BottleneckContents(128, 4, 0, False, True)),  # ResNeXt-50's, 32 groups
        (16_952, 32, 48, bottlenecks.BottleneckContents(48, 24, 8, False, True)),  # RegNetY-1.6GF's, gated
        (78_784 + 4, 256, 256, None),
    ],
)
def test_a_bottleneck_is_known_by_its_parameters(
    count: int, first: int, last: int, inside: bottlenecks.BottleneckContents | None
) -> None:
    assert bottlenecks.solve(count, first, last) == inside
    if inside is not None:
        made = bottlenecks.layers(inside, (8, first, 32, 32), (8, last, 16, 16), "relu")
        assert parameters(made) == count


@given(
    wide=st.sampled_from([1, 2, 4]),
    group=st.sampled_from([8, 16, 64]),
    last=st.sampled_from([256, 512, 1024]),
    shortcut=st.booleans(),
)
def test_whatever_a_bottleneck_holds_the_guess_has_as_many_parameters(
    wide: int, group: int, last: int, shortcut: bool
) -> None:
    inside = bottlenecks.BottleneckContents(last // wide, group, 0, False, shortcut)
    shapes = (2, last // 2 if shortcut else last, 8, 8), (2, last, 8, 8)
    count = parameters(bottlenecks.layers(inside, *shapes, "relu"))
    found = bottlenecks.solve(count, shapes[0][1], last)
    assert found is not None
    assert parameters(bottlenecks.layers(found, *shapes, "relu")) == count


def test_a_dense_layer_shows_how_many_channels_it_reads() -> None:
    made = stacks.dense_layer(49_600, (8, 32, 56, 56), "relu")  # the second of DenseNet-121
    assert [layer.output_shapes[0][1] for layer in made] == [96, 96, 128, 128, 128, 32]
    assert parameters(made) == 49_600
    assert stacks.dense_layer(49_601, (8, 32, 56, 56), "relu") == ()


def test_a_stage_of_convnext_is_as_many_blocks_as_its_parameters_tell() -> None:
    assert stacks.convnext_blocks(79_296, 96) == (1, True)
    assert stacks.convnext_blocks(3 * 79_296, 96) == (3, True)
    assert stacks.convnext_blocks(79_200, 96) == (1, False)
    assert stacks.convnext_blocks(79_201, 96) == (0, False)
    made = list(stacks.convnext(3, (8, 96, 56, 56), "gelu", scaled=False))
    assert parameters(made) == 3 * 79_200


def test_a_shortcut_reads_what_its_block_reads_and_activates_nothing() -> None:
    entry, outs = (8, 64, 56, 56), (8, 256, 56, 56)
    made = stacks.shortcut(16_896, entry, outs)
    assert [layer.kind for layer in made] == ["conv2d", "batchnorm2d"]
    assert made[0].input_shapes == (entry,)
    assert [layer.kind for layer in stacks.shortcut(16_384, entry, outs)] == ["conv2d"]
    assert stacks.shortcut(16_897, entry, outs) == stacks.shortcut(16_896, outs, outs) == ()


def hidden(
    kind: str, shape: tuple[int, ...], count: int, path: tuple[tuple[str, str], ...] = ()
) -> list[str]:
    """Return the kinds of layers that a row is taken to hold."""
    row = Layer(kind=kind, name=kind, path=path, output_shapes=(shape,), params=count, is_block=True)
    elsewhere = ShownRows(activation="gelu", layernorm=True, norm="layernorm", dropout=False)
    return [layer.kind for layer in expand(row, shape, shape, elsewhere)]


def test_layers_on_windows_are_those_of_a_transformer() -> None:
    """NesT keeps its windows in a dimension of their own: batch, windows, tokens, width."""
    assert exact_stack(223_680, 96) and not exact_stack(223_681, 96)
    assert hidden("sequential", (8, 16, 196, 96), 223_680).count("linear") == 12
    assert "conv2d" in hidden("sequential", (8, 96, 56, 56), 223_680)


def test_the_last_transformation_of_bert_is_one_linear_layer() -> None:
    assert hidden("bertpredictionheadtransform", (8, 512, 768), 592_128) == ["linear", "gelu", "layernorm"]


def test_what_poolers_and_gates_activate_says_nothing_of_blocks() -> None:
    def text(*found: str) -> ShownRows:
        return shown(tuple(Layer(kind=kind, name=kind, output_shapes=((8, 64),)) for kind in found))

    assert activation_of(text("tanh", "sigmoid"), tokens=True) == "gelu"
    assert activation_of(text("tanh", "relu"), tokens=True) == "relu"
    assert activation_of(text("layernorm"), tokens=False) == "gelu"
    row = Layer(kind="conv2dnormactivation", name="Conv2dNormActivation: 3-1", is_block=True)
    assert activation_of(shown((row,)), tokens=False) == "relu"


@pytest.mark.parametrize(
    ("kind", "around", "attention"),
    [
        ("modulelist", "LayoutLMEncoder", "layoutlmAttention"),
        ("t5block", "T5Stack", "t5Attention"),
        ("modulelist", "BertEncoder", "Attention"),
    ],
)
def test_hidden_attention_is_called_as_the_classes_around_it_are(
    kind: str, around: str, attention: str
) -> None:
    row = Layer(kind=kind, name=kind, path=((around, f"{around}: 2-1"),), params=7_087_872, is_block=True)
    elsewhere = ShownRows(activation="gelu", layernorm=False, norm="layernorm", dropout=True)
    made = expand(row, (8, 128, 768), (8, 128, 768), elsewhere)
    assert {layer.path[-1][0] for layer in made if layer.path} == {attention}


@pytest.mark.parametrize(
    ("count", "width", "norm", "form"),
    [
        (2_361_344, 1024, 1024, None),
        (
            11_274_240,
            1024,
            1024,
            decoders.DecoderForm(1, 2816, 256, True, 2, ("none", False)),
        ),  # LLaMA's, shared keys
        (
            11_275_776,
            1024,
            1024,
            decoders.DecoderForm(1, 2816, 256, True, 2, ("inner", False)),
        ),  # Qwen2's biases
        (
            12_589_056,
            1024,
            2048,
            decoders.DecoderForm(1, 4096, 1024, False, 1, ("all", False)),
        ),  # GPT-J's one norm; its biases fit both parts
        (
            10_618_880,
            1024,
            2048,
            decoders.DecoderForm(1, 4096, 64, False, 1, ("none", False)),
        ),  # Falcon's one key
    ],
)
def test_a_language_model_s_layer_is_known_by_its_parameters(
    count: int, width: int, norm: int, form: decoders.DecoderForm | None
) -> None:
    assert decoders.solve(count, width, norm) == form
    if form is not None:
        templates = TokenTemplates(
            "silu", dropout=False, norm="llamarmsnorm" if norm == width else "layernorm"
        )
        made = list(templates.block("decoderlayer", count, (8, 128, width), (8, 128, width)))
        assert parameters(made) == count
        assert len([layer for layer in made if layer.kind == "linear"]) == 6 + form.gated


@pytest.mark.parametrize(
    ("classes", "activation"),
    [
        (("ModuleList", "GPT2Model", "GPT2LMHeadModel"), "newgeluactivation"),
        (("PhiDecoderLayer",), "newgeluactivation"),
        (("Phi3DecoderLayer",), None),
        (("GPTNeoXLayer",), None),
        (("OPTDecoder",), "relu"),
        (("T5Block", "T5Stack"), "relu"),
        (("Net", "Sequential"), None),
    ],
)
def test_published_models_have_the_activation_of_their_configuration(
    classes: tuple[str, ...], activation: str | None
) -> None:
    assert usual_activation(classes) == activation
    assert activation_of(shown(()), tokens=True, classes=classes) == (activation or "gelu")


def test_the_norm_inside_is_the_one_that_the_text_shows_last() -> None:
    first, last = (Layer(kind=kind, name=kind, params=64) for kind in ("layernorm", "llamarmsnorm"))
    assert shown((first, last)).norm == "llamarmsnorm"
    assert shown((Layer(kind="batchnorm2d", name="BatchNorm2d", params=64),)).norm == "layernorm"


def test_few_widths_are_tried_for_a_block_of_thousands_of_channels() -> None:
    """A text of 4,000 such rows took half a minute."""
    first = last = 2048
    each = 4 + first + 9 + last
    widths = inverted._widths(first)
    wide = widths[len(widths) // 2]
    near = inverted._near(widths, each * wide, each, first)
    assert wide in near
    assert len(near) < len(widths) / 2
    assert inverted.solve(each * wide + 2 * last, first, last) == inverted.InvertedContents(wide, 1, 9, 0)


def test_what_a_text_shows_is_looked_up_once_whatever_it_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(
        "gpumemnet.summaries.collapsed_blocks.expand.shown",
        lambda layers: calls.append(layers) or shown(layers),
    )
    text = (SUMMARIES / "bert_default.torchinfo.txt").read_text(encoding="utf-8")
    build_profile(parse_text(text, path="x"), TrainingSetup(batch_size=8), path="x")
    assert len(calls) == 1
