from __future__ import annotations

import pytest
from paths import SUMMARIES

from gpumemnet.gpu_memory.cudnn import conv_geometry, conv_layer, conv_workspace, reduction, rnn_reserve
from gpumemnet.names import ConvPass
from gpumemnet.profile.build import build_profile, profile_summary, profile_with_warnings, with_shapes
from gpumemnet.profile.record import ModelProfile
from gpumemnet.summaries.collapsed_blocks import expand
from gpumemnet.summaries.texts.formats.detect import parse_text
from gpumemnet.summaries.texts.records import Layer
from gpumemnet.summaries.texts.settle import count_once
from gpumemnet.training import TrainingSetup
from gpumemnet.units import MIB


def table(*rows: tuple[str, str, int]) -> str:
    """Return a torchsummary table of (kind, shape without batch, parameters)."""
    lines = [f"{'Layer (type)':>20} {'Output Shape':>25} {'Param #':>15}", "=" * 64]
    lines += [f"{kind}-{at} [-1, {shape}] {params}" for at, (kind, shape, params) in enumerate(rows, start=1)]
    total = sum(params for *_, params in rows)
    return "\n".join([*lines, "=" * 64, f"Total params: {total}", f"Trainable params: {total}", ""])


def profile(*rows: tuple[str, str, int], **setup: object) -> ModelProfile:
    values = {"batch_size": 1024, "optimizer": "sgd", **setup}
    return profile_summary(table(*rows), TrainingSetup(**values))  # type: ignore[arg-type]


LINEAR = ("Linear", "256", 256 * 257)
ROW = 1024 * 256 * 4
"""One output of LINEAR in fp32: 1 MiB."""


def test_a_linear_layer_keeps_its_input_and_the_loss_its_probabilities() -> None:
    # The first input is the batch itself, which lives anyway; the second layer's input is kept.
    assert profile(LINEAR, LINEAR).saved_bytes == 2 * ROW
    assert profile(LINEAR, LINEAR).input_bytes == ROW


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        ("ReLU", ROW),
        ("Sigmoid", ROW),
        ("GELU", 2 * ROW),
        ("BloomGelu", 2 * ROW),
        ("SiLU", 2 * ROW),
        ("LeakyReLU", 2 * ROW),
        ("Dropout", ROW + ROW // 4),
    ],
)
def test_what_an_activation_adds_between_two_layers(kind: str, kept: int) -> None:
    between = profile(LINEAR, (kind, "256", 0), LINEAR).saved_bytes
    assert between - ROW == kept


def test_autocast_halves_and_adds_a_copy_of_the_weights() -> None:
    full, amp = profile(LINEAR, LINEAR), profile(LINEAR, LINEAR, precision="amp")
    assert amp.cast_bytes == 2 * 256 * 257 * 2
    assert amp.saved_linear_bytes == full.saved_linear_bytes // 2
    assert amp.saved_mask_bytes == ROW // 2  # the batch has a 16-bit copy of its own


@pytest.mark.parametrize(
    ("optimizer", "states"), [("sgd", 0), ("sgd-momentum", 1), ("adam", 2), ("rmsprop", 1)]
)
def test_optimizer_states(optimizer: str, states: int) -> None:
    found = profile(LINEAR, optimizer=optimizer)
    assert found.optimizer_bytes == states * found.gradient_bytes


def test_frozen_layers_have_no_gradient_and_keep_nothing() -> None:
    text = table(LINEAR, LINEAR, LINEAR).replace(
        f"Trainable params: {3 * 256 * 257}", f"Trainable params: {256 * 257}"
    )
    found = profile_summary(text, TrainingSetup(batch_size=1024))
    assert found.gradient_bytes == 256 * 257 * 4
    assert found.saved_bytes == 2 * ROW  # the trainable layer's input, and the loss


def test_a_batch_printed_inside_the_shapes_is_replaced() -> None:
    name = str(SUMMARIES / "residual_all_columns.torchinfo.txt")
    eight, big = (profile_summary(name, TrainingSetup(batch_size=size)) for size in (None, 64))
    assert (eight.batch_size, big.batch_size) == (8, 64)
    assert big.saved_bytes == 8 * eight.saved_bytes


def test_bert_from_print_and_from_torchinfo_agree() -> None:
    setup = TrainingSetup(batch_size=4, seq_len=16)
    printed, table_ = (
        profile_summary(str(SUMMARIES / name), setup) for name in ("bert.repr.txt", "bert.torchinfo.txt")
    )
    assert printed.parameters == table_.parameters
    assert printed.attentions == table_.attentions == 2
    assert printed.saved_bytes == pytest.approx(table_.saved_bytes, rel=0.02)


def test_a_hidden_list_of_layers_is_guessed_back() -> None:
    bert_base = Layer(kind="modulelist", name="ModuleList: 3-6", params=85_054_464, is_block=True)
    elsewhere = expand.ShownRows(activation="gelu", layernorm=False, norm="layernorm", dropout=True)
    inside = expand.expand(bert_base, (8, 512, 768), (8, 512, 768), elsewhere)
    linear = [layer.output_shapes[0][-1] for layer in inside if layer.kind == "linear"]
    assert linear == 12 * [768, 768, 768, 768, 3072, 768]


def test_tied_weights_count_once() -> None:
    text = (SUMMARIES / "gpt2.repr.txt").read_text(encoding="utf-8")
    summary = count_once(parse_text(text, path="x"))
    assert sum(layer.params or 0 for layer in summary.layers) == 172032  # what PyTorch counts
    assert build_profile(summary, TrainingSetup(batch_size=1, seq_len=8), path="x")[0].parameters == 172032


def test_t5_shows_one_embedding_four_times() -> None:
    summary = parse_text((SUMMARIES / "t5.repr.txt").read_text(encoding="utf-8"), path="x")
    found = with_shapes(summary, TrainingSetup(batch_size=1, seq_len=8))
    assert sum(layer.params or 0 for layer in found.layers) == pytest.approx(171264, rel=0.01)


def test_assumptions_are_reported() -> None:
    _, warnings = profile_with_warnings(str(SUMMARIES / "residual.repr.txt"), TrainingSetup(batch_size=2))
    assert warnings == (
        "the text shows no shapes; assumed an input of 3x224x224; save torchinfo's summary with its "
        "input instead, or try rad-estimate --input",
    )


def test_a_user_with_the_input_of_a_printed_model_reads_what_would_book_less() -> None:
    setup = TrainingSetup(batch_size=2, input_shape=(2, 3, 224, 224))
    _, (reported,) = profile_with_warnings(str(SUMMARIES / "residual.repr.txt"), setup)
    assert (
        reported.startswith("print(model) shows neither sizes nor the order")
        and "torchinfo.summary(" in reported
    )


def test_recurrent_structure_follows_from_the_count() -> None:
    assert rnn_reserve.structure("lstm", 4 * 32 * (16 + 32 + 2) + 4 * 32 * (32 + 32 + 2), 16, 32) == (2, 1)
    assert rnn_reserve.structure("gru", 2 * 3 * 32 * (16 + 32 + 2), 16, 64) == (1, 2)


def borrowed(kind: str, *, area: int, groups: int = 1, strided: bool = False) -> int:
    shape = (8, 64, 32, 32)
    plan = conv_workspace.ConvolutionPlan(
        kind=ConvPass(kind), x=shape, y=shape, area=area, groups=groups, item_bytes=4, strided=strided
    )
    return conv_workspace.workspace_bytes(plan)


def test_convolutions_borrow_copies_and_depthwise_ones_nothing() -> None:
    assert borrowed("weight", area=9, groups=64) == borrowed("forward", area=1) == 0
    data = borrowed("data", area=9)
    assert data == borrowed("forward", area=9) == 4 * MIB + 64 * 64 * 9 * 4
    assert borrowed("weight", area=9) > data
    assert (conv_geometry.groups_of(64 * 9, 64, 64), conv_geometry.groups_of(64 * 16 * 9, 64, 64)) == (64, 4)


def test_a_transposed_convolution_borrows_as_the_one_that_it_is_the_gradient_of() -> None:
    small, large, count = (8, 64, 16, 16), (8, 32, 32, 32), 64 * 32 * 4
    transposed = conv_layer.memory(small, large, count, 4, True)
    plain = conv_layer.memory(large, small, count, 4, False)
    assert transposed.forward_bytes == plain.data_bytes
    assert (transposed.data_bytes, transposed.weight_bytes) == (plain.forward_bytes, plain.weight_bytes)


def test_a_count_that_fits_no_kernel_is_taken_for_a_1x1_convolution() -> None:
    ins, out = (2, 7, 9, 9), (2, 3, 9, 9)
    assert conv_layer.memory(ins, out, 5, 4, False) == conv_layer.memory(ins, out, 7 * 3, 4, False)
    assert conv_layer.memory(ins, out, 5, 4, False) != conv_layer.memory(ins, out, 7 * 3 * 9, 4, False)


def test_a_fourier_transform_spreads_the_weight_over_the_image() -> None:
    x, wide = (2, 64, 128, 128), (2, 64, 512, 512)
    assert conv_geometry.fourier_bytes(x=x, y=x, weights=64 * 64 * 9, groups=1) == 64 * 64 * 128 * 128 * 4
    assert conv_geometry.fourier_bytes(x=x, y=x, weights=64 * 64, groups=1) == 0
    assert conv_geometry.fourier_bytes(x=x, y=x, weights=64 * 9, groups=64) == 0
    assert conv_geometry.fourier_bytes(x=wide, y=wide, weights=64 * 64 * 9, groups=1) == 0


def test_a_cut_off_block_spends_all_its_parameters() -> None:
    block = Layer(kind="basicblock", name="BasicBlock: 3-1", params=230_144, is_block=True)
    elsewhere = expand.ShownRows(activation="relu", layernorm=False, norm="layernorm", dropout=False)
    inside = expand.expand(block, (8, 64, 128, 128), (8, 128, 64, 64), elsewhere)
    assert sum(layer.params or 0 for layer in inside) == 230_144
    assert [layer.kind for layer in inside].count("conv2d") == 3


def test_the_gradient_of_a_bias_borrows_a_buffer_for_its_sum() -> None:
    # Measured on an H200: what the peak of a perceptron exceeded its tensors by.
    assert reduction.row_sums_bytes(16384, 288) == 36 * MIB
    assert reduction.row_sums_bytes(3030, 2592) == 60.75 * MIB
    assert reduction.row_sums_bytes(64, 100) == reduction.row_sums_bytes(1, 5) == 0
    without = ("Linear", "256", 256 * 256)
    biased = profile(without, ("Linear", "288", 288 * 257), batch_size=16384)
    assert biased.borrowed_bytes == 36 * MIB
    assert profile(without, ("Linear", "288", 288 * 256), batch_size=16384).borrowed_bytes == 0
