"""Classes named after the layers that they hold, and images that no row shows: read from what else a text says."""

from __future__ import annotations

import pytest

from gpumemnet.profile.build import profile_summary
from gpumemnet.summaries.collapsed_blocks import named_layers
from gpumemnet.summaries.graph.build import build
from gpumemnet.summaries.graph.stems import usual_image
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.formats.detect import parse_text
from gpumemnet.summaries.texts.records import ModelSummary
from gpumemnet.training import TrainingSetup

SETUP = TrainingSetup(batch_size=8)
LINE = "=" * 80


def table(*rows: str, params: int, input_mb: float) -> str:
    """A text of torchinfo's with the columns that it has by default."""
    head = (LINE, "Layer (type:depth-idx)          Output Shape          Param #", LINE)
    totals = (
        f"Total params: {params:,}",
        f"Trainable params: {params:,}",
        LINE,
        f"Input size (MB): {input_mb:.2f}",
    )
    return "\n".join((*head, *rows, LINE, *totals))


@pytest.mark.parametrize(
    "name",
    ["BnActConv2d", "Conv2dNormActivation", "BasicConv2d", "SeparableConv2d", "NormLinear", "PatchEmbedding"],
)
def test_a_class_named_after_several_layers_may_hold_them(name: str) -> None:
    assert kinds.may_hold_layers(kinds.canonical(name))


@pytest.mark.parametrize(
    "name",
    [
        "Conv2d",
        "ScaledStdConv2dSame",
        "LlamaRMSNorm",
        "BatchNormAct2d",
        "SiLUActivation",
        "ConvNextDropPath",
        "BartScaledWordEmbedding",
        "QuantLinear",
        "GPTNeoXRotaryEmbedding",
        "Conv1D",
    ],
)
def test_a_layer_of_a_librarys_own_is_one_layer(name: str) -> None:
    assert not kinds.may_hold_layers(kinds.canonical(name))


SMALL, WIDE = (8, 10, 56, 56), (8, 96, 56, 56)


@pytest.mark.parametrize(
    ("kind", "count", "made"),
    [
        ("bnactconv2d", 980, [("batchnorm2d", SMALL), ("relu", SMALL), ("conv2d", WIDE)]),
        ("conv2dnormactivation", 1152, [("conv2d", WIDE), ("batchnorm2d", WIDE), ("relu", WIDE)]),
        ("basicconv2d", 1152, [("conv2d", WIDE), ("batchnorm2d", WIDE), ("relu", WIDE)]),
        ("separableconv2d", 90 + 960, [("conv2d", SMALL), ("conv2d", WIDE)]),
        (
            "separableconv2d",
            90 + 960 + 192,
            [("conv2d", SMALL), ("conv2d", WIDE), ("batchnorm2d", WIDE), ("relu", WIDE)],
        ),
        ("inceptiondwconv2d", 300, []),
        ("bnactconv2d", 20, []),
        ("separableconv2d", 7, []),
        ("doubleconv", 5000, []),
    ],
)  # fmt: skip
def test_the_name_shows_what_is_inside_and_in_which_order(
    kind: str, count: int, made: list[tuple[str, tuple[int, ...]]]
) -> None:
    found = named_layers.inside(kind, count, SMALL, WIDE, "relu")
    assert [(layer.kind, layer.output_shapes[0]) for layer in found] == made
    assert not found or sum(layer.params or 0 for layer in found) == count


CUT = table(
    "Net                             [2, 10]               --",
    "├─Conv2d: 1-1                   [2, 10, 56, 56]       270",
    "├─Sequential: 1-2               [2, 96, 56, 56]       --",
    "│    └─BnActConv2d: 2-1         [2, 96, 56, 56]       980",
    "│    └─BnActConv2d: 2-2         [2, 96, 56, 56]       9,408",
    "├─Linear: 1-3                   [2, 10]               970",
    params=270 + 980 + 9408 + 970,
    input_mb=0.08,
)
WHOLE = table(
    "Net                             [2, 10]               --",
    "├─Conv2d: 1-1                   [2, 10, 56, 56]       270",
    "├─Sequential: 1-2               [2, 96, 56, 56]       --",
    "│    └─BnActConv2d: 2-1         [2, 96, 56, 56]       --",
    "│    │    └─BatchNorm2d: 3-1    [2, 10, 56, 56]       20",
    "│    │    └─ReLU: 3-2           [2, 10, 56, 56]       --",
    "│    │    └─Conv2d: 3-3         [2, 96, 56, 56]       960",
    "│    └─BnActConv2d: 2-2         [2, 96, 56, 56]       --",
    "│    │    └─BatchNorm2d: 3-4    [2, 96, 56, 56]       192",
    "│    │    └─ReLU: 3-5           [2, 96, 56, 56]       --",
    "│    │    └─Conv2d: 3-6         [2, 96, 56, 56]       9,216",
    "├─Linear: 1-3                   [2, 10]               970",
    params=270 + 980 + 9408 + 970,
    input_mb=0.08,
)


def saved(text: str) -> int:
    return profile_summary(text, SETUP).saved_bytes


def test_rows_that_hold_layers_at_the_depth_limit_are_hidden_levels() -> None:
    cut, whole = profile_summary(CUT, SETUP), profile_summary(WHOLE, SETUP)
    assert cut.hidden_bytes and not whole.hidden_bytes
    assert cut.parameters == whole.parameters
    assert cut.saved_bytes == pytest.approx(whole.saved_bytes, rel=0.05)


def test_a_class_without_rows_inside_above_the_limit_holds_nothing() -> None:
    inside = "│    │    └─ReLU: 3-1           [2, 96, 56, 56]       --"
    text = CUT.replace("├─Linear: 1-3", f"├─Sequential: 1-3\n│    └─Sequential: 2-3\n{inside}\n├─Linear: 1-4")
    found = [layer.is_block for layer in parse_text(text, path="x").layers if layer.params == 980]
    assert found == [False]


def test_torchsummary_ends_a_class_with_a_row_that_has_no_parameters() -> None:
    rows = (
        ("BatchNorm2d-1", "[-1, 10, 56, 56]", 20),
        ("ReLU-2", "[-1, 10, 56, 56]", 0),
        ("Conv2d-3", "[-1, 96, 56, 56]", 960),
        ("BnActConv2d-4", "[-1, 96, 56, 56]", 0),
        ("GELUActivation-5", "[-1, 96, 56, 56]", 0),
    )
    head = ("-" * 64, "        Layer (type)               Output Shape         Param #", LINE)
    lines = (f"{name:>20} {shape:>25} {count:>15}" for name, shape, count in rows)
    text = "\n".join((*head, *lines, LINE, "Total params: 980", "Input size (MB): 0.12"))
    found = {layer.name: layer.is_block for layer in parse_text(text, path="x").layers}
    assert found["BnActConv2d-4"] and not found["GELUActivation-5"]
    assert saved(text) == saved("\n".join(line for line in text.splitlines() if "BnAct" not in line))


def image_of(text: str) -> tuple[int, ...]:
    summary: ModelSummary = parse_text(text, path="x")
    tape, _ = build(summary, SETUP)
    return tuple(sorted(tape.sizes[number] for number in tape.constants))


@pytest.mark.parametrize(
    ("kernel", "channels", "side", "input_mb", "stride"),
    [
        (7, 3, 64, 2 * 3 * 256 * 256 * 4 / 1e6, 4),
        (
            7,
            3,
            64,
            2 * (3 * 256 * 256 * 4 + 256 * 256 * 8) / 1e6,
            4,
        ),  # with a label of 8 bytes for each pixel
        (7, 3, 112, 2 * 3 * 224 * 224 * 4 / 1e6, 2),
        (3, 3, 112, 2 * 3 * 224 * 224 * 4 / 1e6, 2),
        (3, 3, 150, 2 * 3 * 299 * 299 * 4 / 1e6, 2),  # uneven: 299 pixels give 150
        (3, 3, 32, 2 * 3 * 32 * 32 * 4 / 1e6, 1),  # 0.0246 MB, stated as 0.02
        (16, 3, 14, 2 * 3 * 224 * 224 * 4 / 1e6, 16),
        (7, 1, 14, 2 * 28 * 28 * 4 / 1e6, 2),
    ],
)
def test_the_stated_size_of_the_input_shows_the_image_that_a_stem_reads(
    kernel: int, channels: int, side: int, input_mb: float, stride: int
) -> None:
    count = 64 * channels * kernel**2
    row = f"├─Conv2d: 1-1                   [2, 64, {side}, {side}]       {count:,}"
    text = table("Net                             [2, 64]          --", row, params=count, input_mb=input_mb)
    assert image_of(text) == (8 * channels * (side * stride) ** 2 * 4,)


def test_where_no_size_is_stated_a_stem_has_its_usual_stride() -> None:
    row = "├─Conv2d: 1-1                   [2, 64, 64, 64]       9,408"
    text = table("Net                             [2, 64]          --", row, params=9408, input_mb=0.0)
    wanted = usual_image(3, (8, 64, 64, 64), 7)
    assert wanted == (8, 3, 128, 128)
    assert image_of(text) == (8 * 3 * 128 * 128 * 4,)
    assert image_of(text.replace("Input size (MB): 0.00", "")) == (8 * 3 * 128 * 128 * 4,)


@pytest.mark.parametrize("stem", ["Conv2d", "SomeStage"])
def test_scores_are_enlarged_to_the_image_whose_size_is_stated(stem: str) -> None:
    def loss_bytes(root: str) -> int:
        rows = (
            f"{root:30}  [2, 150, 64, 64]          --",
            f"├─{stem}: 1-1                   [2, 32, 64, 64]       4,736",
            "├─Conv2d: 1-2                   [2, 150, 64, 64]       4,950",
        )
        size = 2 * (3 * 256 * 256 * 4 + 256 * 256 * 8) / 1e6
        return saved(table(*rows, params=9686, input_mb=size))

    small, enlarged = 8 * 150 * 64 * 64 * 4, 8 * 150 * 256 * 256 * 4
    assert loss_bytes("NetForSemanticSegmentation") - loss_bytes(
        "NetForImageClassification"
    ) == pytest.approx(enlarged - small, rel=0.02)
