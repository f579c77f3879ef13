"""Containers of torchsummary's texts, which show no depth: found from the order of rows and from classes alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumemnet.profile.build import profile_summary
from gpumemnet.profile.record import ModelProfile
from gpumemnet.summaries.texts.formats.detect import parse_text
from gpumemnet.summaries.texts.formats.nesting import nested
from gpumemnet.summaries.texts.records import Layer
from gpumemnet.training import TrainingSetup

EXAMPLES = Path(__file__).parents[4] / "examples" / "models"
Row = tuple[str, tuple[int, ...], int]
Tree = tuple[str, list["Tree"]]


def table(*rows: Row) -> str:
    """Return a text of torchsummary's from (class, shape without batch, parameters)."""
    lines = [
        f"{f'{name}-{at}':>26} {[-1, *shape]!s:>26} {count:>12,}"
        for at, (name, shape, count) in enumerate(rows, start=1)
    ]
    total = f"Total params: {sum(count for _, _, count in rows):,}"
    return "\n".join(["-" * 64, "Layer (type)   Output Shape   Param #", "=" * 64, *lines, "=" * 64, total])


def paths(*trees: Tree) -> list[tuple[list[str], list[str]]]:
    """Return, for each row of a text that these modules make, the classes around it: found, and as they are."""
    rows: list[tuple[str, list[str], bool]] = []

    def run(tree: Tree, around: list[str]) -> None:
        name, inside = tree
        for each in inside:
            run(each, [*around, name])
        rows.append((name, around, bool(inside)))

    for tree in trees:
        run(tree, [])
    layers = [
        Layer(kind=name.lower(), name=f"{name}-{at}", is_block=is_block)
        for at, (name, _, is_block) in enumerate(rows, start=1)
    ]
    return [
        ([cls for cls, _ in layer.path[1:]], around)
        for layer, (_, around, _) in zip(nested(layers), rows, strict=True)
    ]


def leaves(*names: str) -> list[Tree]:
    return [(name, []) for name in names]


ATTENTION: Tree = ("Attention", leaves("Linear", "Dropout", "Linear", "Dropout"))
MLP: Tree = ("Mlp", leaves("Linear", "GELU", "Dropout", "Linear"))
BLOCK: Tree = (
    "Block",
    [*leaves("LayerNorm"), ATTENTION, *leaves("Identity", "LayerNorm"), MLP, *leaves("Identity")],
)
PATCHES: Tree = ("PatchEmbed", leaves("Conv2d"))
NORMED: Tree = ("ConvNorm", leaves("Conv2d", "BatchNorm2d"))
PLAIN: Tree = ("BasicBlock", leaves("Conv2d", "BatchNorm2d", "ReLU", "Conv2d", "BatchNorm2d", "ReLU"))
SHRINKS: Tree = (
    "BasicBlock",
    leaves("Conv2d", "BatchNorm2d", "ReLU", "Conv2d", "BatchNorm2d", "Conv2d", "BatchNorm2d", "ReLU"),
)
POOLED: Tree = ("Block", [*leaves("LayerNorm", "Linear"), ATTENTION, *leaves("Identity", "LayerNorm"), MLP])
MODELS: dict[str, list[Tree]] = {
    "transformer": [PATCHES, *leaves("Dropout"), BLOCK, BLOCK, BLOCK, *leaves("LayerNorm", "Linear")],
    "a block with a layer before its attention": [PATCHES, BLOCK, BLOCK, POOLED, BLOCK, *leaves("Linear")],
    "branches": [
        ("Sum", [NORMED, NORMED, *leaves("ReLU")]),
        ("Sum", [*leaves("BatchNorm2d"), NORMED, NORMED, *leaves("ReLU")]),
        ("Sum", [NORMED, NORMED, *leaves("ReLU")]),
        ("Sum", [NORMED, *leaves("ReLU")]),
        ("Pool", leaves("AdaptiveAvgPool2d")),
        *leaves("Linear"),
    ],
    "residual": [
        *leaves("Conv2d", "BatchNorm2d", "ReLU", "MaxPool2d"), PLAIN, PLAIN, SHRINKS, PLAIN, SHRINKS, PLAIN,
        *leaves("Linear"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_rows_stand_in_the_containers_that_hold_them(name: str) -> None:
    for found, expected in paths(*MODELS[name]):
        assert found == expected


def test_a_text_without_containers_has_no_paths() -> None:
    layers = [Layer(kind="linear", name="Linear-1"), Layer(kind="relu", name="ReLU-2")]
    assert nested(layers) == tuple(layers)


def test_a_norm_that_holds_its_activation_comes_before_it() -> None:
    rows: list[Row] = []
    for _ in range(2):
        rows += [("Conv2d", (8, 4, 4), 80), ("Identity", (8, 4, 4), 0), ("SiLU", (8, 4, 4), 0)]
        rows += [("BatchNormAct2d", (8, 4, 4), 16), ("ConvNormAct", (8, 4, 4), 0)]
    layers = parse_text(table(*rows), path="text").layers
    assert [layer.kind for layer in layers[:5]] == [
        "conv2d", "batchnormact2d", "identity", "silu", "convnormact",
    ]  # fmt: skip
    assert [cls for cls, _ in layers[3].path[1:]] == ["ConvNormAct", "BatchNormAct2d"]


def test_resnet_50_is_the_same_in_both_formats() -> None:
    setup = TrainingSetup(batch_size=32)
    one, other = (
        profile_summary((EXAMPLES / f"resnet50_{name}.txt").read_text(encoding="utf-8"), setup)
        for name in ("torchinfo", "torchsummary")
    )
    assert one.saved_bytes == other.saved_bytes
    assert one.tensors == other.tensors


def profile(*rows: Row) -> ModelProfile:
    return profile_summary(table(*rows), TrainingSetup(batch_size=2))


def test_heads_that_are_folded_into_the_batch_are_counted() -> None:
    """The ViT of SAM in timm: places of norms show [batch x 12, tokens, 64], and nothing fuses three dimensions."""
    tokens = (196, 768)
    rows: list[Row] = [("Conv2d", (768, 14, 14), 590_592), ("PatchEmbed", tokens, 0)]
    for _ in range(2):
        rows += [("LayerNorm", tokens, 1536), ("Linear", (196, 2304), 1_771_776)]
        rows += [("Identity", (196, 64), 0), ("Identity", (196, 64), 0), ("Linear", tokens, 590_592)]
        rows += [("Attention", tokens, 0), ("Block", tokens, 0)]
    assert profile(*rows).score_bytes == 2 * (2 * 12 * 196 * 196 * 4)  # two blocks


def test_patches_that_are_read_one_by_one_are_counted() -> None:
    """TNT cuts the image into 196 patches, each of which becomes 16 tokens; no row shows the 196."""
    rows: list[Row] = [("Unfold", (768, 196), 0), ("Conv2d", (24, 4, 4), 3552), ("PixelEmbed", (16, 24), 0)]
    rows += [("LayerNorm", (196, 384), 768), ("Linear", (196, 384), 147_840)]
    rows += [("LayerNorm", (16, 24), 48), ("Linear", (16, 96), 2400), ("GELU", (16, 96), 0)]
    made = 2 * 196 * 16 * 96 * 4
    assert profile(*rows).saved_activation_bytes >= made
    assert profile(*rows[1:]).saved_activation_bytes < made  # without the first row it is one small image


def test_two_branches_are_multiplied_though_no_row_shows_what_is_read() -> None:
    """StarNet: of two 1x1 convolutions of one tensor one is activated; their product is read, and both are kept."""
    image, wide = (32, 56, 56), (128, 56, 56)
    block: list[Row] = [("Conv2d", wide, 4224)] * 2
    block += [("ReLU6", wide, 0), ("Conv2d", image, 4128)]
    blocks: list[Row] = [*block, ("Block", image, 0)] * 2
    stem: Row = ("Conv2d", image, 896)
    kept = 2 * 128 * 56 * 56 * 4
    alone = profile(stem, *[row for row in blocks if row[0] != "Block"])
    assert profile(stem, *blocks).saved_bytes >= alone.saved_bytes + 2 * kept


def test_a_norm_of_all_tokens_of_a_batch_reads_them_all() -> None:
    """LeViT flattens tokens for a BatchNorm1d: its row shows channels alone."""
    rows: list[Row] = [("Linear", (196, 64), 4160), ("BatchNorm1d", (64,), 128), ("Linear", (196, 64), 4160)]
    assert profile(*rows).saved_norm_bytes >= 2 * 196 * 64 * 4


def test_attention_of_convolutions_is_found_where_no_row_shows_what_is_read() -> None:
    """Visformer, CoAtNet: one 1x1 convolution makes queries, keys and values."""
    image = (192, 14, 14)
    rows: list[Row] = [("Conv2d", image, 147_456)]
    for _ in range(2):
        rows += [("BatchNorm2d", image, 384), ("Conv2d", (576, 14, 14), 110_592), ("Conv2d", image, 36_864)]
        rows += [("Attention", image, 0), ("Block", image, 0)]
    assert profile(*rows).attentions == 2
    assert not profile(*[row for row in rows if row[0] != "Attention"]).attentions


def test_projections_that_run_as_functions_are_added_where_the_output_projection_alone_is_there() -> None:
    """BEiT: no row shows queries, keys and values, whose weights torchsummary does not count either."""
    tokens = (197, 768)
    rows: list[Row] = [("Conv2d", (768, 14, 14), 590_592), ("PatchEmbed", (196, 768), 0)]
    for _ in range(2):
        rows += [("LayerNorm", tokens, 1536), ("Linear", tokens, 590_592), ("Dropout", tokens, 0)]
        rows += [("Attention", tokens, 0), ("Block", tokens, 0)]
    found = profile(*rows)
    assert found.attentions == 2
    assert found.parameter_bytes >= 2 * 4 * (1536 + 590_592 + 3 * 768 * 768)


def test_torchvisions_attention_in_windows_has_the_weights_that_torchinfo_shows() -> None:
    """Swin's projections run as functions: torchinfo's row has 4 matrices, their biases and 169 numbers a head."""
    image = (56, 56, 96)
    rows: list[Row] = [("Conv2d", (96, 56, 56), 4704), ("Permute", image, 0)]
    for _ in range(2):
        rows += [("LayerNorm", image, 192), ("ShiftedWindowAttention", image, 0)]
        rows += [("LayerNorm", image, 192), ("Linear", image, 9312), ("SwinTransformerBlock", image, 0)]
    layers = parse_text(table(*rows), path="text").layers
    shown = [layer.params for layer in layers if layer.kind == "shiftedwindowattention"]
    assert shown == [4 * 96 * 96 + 4 * 96 + 169 * 3] * 2
    assert profile(*rows).score_bytes == 2 * (
        2 * 64 * 3 * 49 * 49 * 4
    )  # 64 windows of 49 tokens, three heads


def test_a_block_after_a_shortcut_multiplies_nothing() -> None:
    """ResNet: a block's sum takes the place of one of its branches, and no block inside of it reads both."""
    thin, wide = (64, 56, 56), (256, 56, 56)
    first: list[Row] = [("Conv2d", thin, 4096), ("BatchNorm2d", thin, 128), ("ReLU", thin, 0)]
    first += [("Conv2d", wide, 16_384), ("BatchNorm2d", wide, 512)]
    shortcut: list[Row] = [("Conv2d", wide, 16_384), ("BatchNorm2d", wide, 512)]
    end: list[Row] = [("ReLU", wide, 0), ("Bottleneck", wide, 0)]
    second: list[Row] = [("Conv2d", thin, 16_384), *first[1:]]
    stem: Row = ("Conv2d", thin, 9408)
    assert not profile(stem, *first, *shortcut, *end, *second, *end, *second, *end).guessed
