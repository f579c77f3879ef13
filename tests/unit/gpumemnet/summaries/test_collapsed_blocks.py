"""What a text hides or leaves unsaid: layers below the depth limit, dropouts of rate 0, gates, losses in 32 bits."""

from __future__ import annotations

import pytest
from paths import SUMMARIES

from gpumemnet.profile.build import profile_summary, with_shapes
from gpumemnet.summaries.collapsed_blocks.scale import Outputs, Stretch, better, enclosing_shapes
from gpumemnet.summaries.graph.build import build
from gpumemnet.summaries.texts.formats.detect import parse_text
from gpumemnet.summaries.texts.records import Layer, ModelSummary
from gpumemnet.summaries.texts.settle import is_idle, without_idle
from gpumemnet.training import TrainingSetup

SETUP = TrainingSetup(batch_size=8)


def stage(output_bytes: int | None) -> ModelSummary:
    """A text that shows a stem and a classifier and hides a stage of convolutions between them."""
    return ModelSummary(
        format="torchinfo",
        batch_size=8,
        output_bytes=output_bytes,
        layers=(
            Layer(kind="conv2d", name="Conv2d: 1-1", output_shapes=((8, 64, 32, 32),), params=1728),
            Layer(kind="stage", name="Stage: 1-2", output_shapes=((8, 64, 32, 32),), params=73_984, is_block=True),
            Layer(kind="linear", name="Linear: 1-3", output_shapes=((8, 10),), params=650),
        ),
    )  # fmt: skip


def hidden_bytes(output_bytes: int | None) -> int:
    return build(stage(output_bytes), SETUP)[0].hidden_bytes


def test_the_total_of_the_text_stretches_and_shrinks_what_is_hidden() -> None:
    shown = 4 * (8 * 64 * 32 * 32 + 8 * 10)
    one = 4 * 8 * 64 * 32 * 32
    guessed = hidden_bytes(None)
    assert hidden_bytes(shown + 2 * one) < hidden_bytes(shown + 4 * one) == pytest.approx(guessed, rel=0.05)
    assert hidden_bytes(shown + 40 * one) == pytest.approx(10 * guessed, rel=0.2)


def test_a_stage_of_many_blocks_is_guessed_as_such() -> None:
    one, shown = 4 * 8 * 64 * 32 * 32, 4 * (8 * 64 * 32 * 32 + 8 * 10)
    tape, _ = build(stage(shown + 40 * one), SETUP)
    assert len(tape.ops) > 3 * len(build(stage(None), SETUP)[0].ops)
    assert 500 < tape.hidden_percent < 2000


def test_an_absurd_total_does_not_stretch_without_end() -> None:
    assert hidden_bytes(10**15) < 5000 * hidden_bytes(None)
    assert hidden_bytes(1) > 0


@pytest.mark.parametrize("counted", [True, False])
def test_projections_of_attention_may_be_counted_or_not(counted: bool) -> None:
    found = Outputs(guessed=100, guessed_attention=100)
    summary = ModelSummary(
        format="torchinfo", layers=(), batch_size=1, output_bytes=4 * (200 if counted else 100)
    )
    assert better(Stretch(), found, summary, 1) is None


def test_torchinfo_states_the_size_of_all_outputs() -> None:
    text = (SUMMARIES / "residual_depth2.torchinfo.txt").read_text()
    deep = (SUMMARIES / "residual.torchinfo.txt").read_text()
    stated = parse_text(text, path="x").output_bytes
    assert stated and stated == parse_text(deep, path="x").output_bytes


def test_a_list_without_a_shape_gives_what_the_container_around_it_gives() -> None:
    inside = Layer(kind="modulelist", name="ModuleList: 2-1", path=(("Encoder", "Encoder: 1-1"),), params=9)
    end = Layer(kind="encoder", name="Encoder: 1-1", output_shapes=((8, 16, 32),), is_block=True)
    assert enclosing_shapes((inside, end), inside) == ((8, 16, 32),)
    assert enclosing_shapes((inside,), inside) == ()


def dropouts(*layers: Layer) -> list[bool]:
    return [is_idle(layer) for layer in without_idle(ModelSummary(format="torchinfo", layers=layers)).layers]


def test_a_dropout_of_rate_0_is_idle_and_so_is_one_next_to_an_identity() -> None:
    block = (("Mlp", "Mlp: 2-1"),)
    assert dropouts(Layer(kind="dropout", name="drop", args={"p": 0.0})) == [True]
    assert dropouts(Layer(kind="dropout", name="drop", args={"p": 0.1}, path=block)) == [False]
    assert dropouts(
        Layer(kind="dropout", name="drop", path=block), Layer(kind="identity", name="i", path=block)
    ) == [
        True,
        False,
    ]
    assert dropouts(Layer(kind="dropout", name="drop", path=block), Layer(kind="identity", name="i")) == [
        False,
        False,
    ]
    other = Layer(kind="dropout", name="attn_drop", path=(("Attention", "Attention: 2-2"),))
    reported = Layer(kind="dropout", name="drop", args={"p": 0.1}, path=block)
    alongside = Layer(kind="dropout", name="drop", path=block), Layer(kind="identity", name="i", path=block)
    assert dropouts(other, *alongside, reported) == [
        True,
        True,
        False,
        False,
    ]  # one argument of the model sets them all


def test_an_idle_dropout_keeps_no_mask() -> None:
    linear = "Linear(in_features=64, out_features=64)"
    text = f"Net(\n  (a): {linear}\n  (d): Dropout(p={{p}}, inplace=False)\n  (b): {linear}\n)\n"
    on, off = (profile_summary(text.format(p=p), TrainingSetup(batch_size=4096)) for p in (0.1, 0.0))
    assert on.saved_mask_bytes == 4096 * 64 and off.saved_mask_bytes == 0


def test_a_gated_feed_forward_part_keeps_both_halves_and_their_product() -> None:
    layers = (
        Layer(kind="linear", name="fc1", output_shapes=((8, 16, 64),), params=33 * 64),
        Layer(kind="silu", name="act", output_shapes=((8, 16, 32),)),
        Layer(kind="linear", name="fc2", output_shapes=((8, 16, 32),), params=33 * 32),
    )
    tape, _ = build(ModelSummary(format="torchinfo", layers=layers, batch_size=8), SETUP)
    groups = [op.group for op in tape.ops]
    assert groups == ["linear", "activation", "function", "linear", "loss"]
    assert tape.ops[2].saved == (tape.ops[0].output, tape.ops[1].output)


@pytest.mark.parametrize(
    ("root", "precision", "item"), [("LlamaForCausalLM", "bf16", 4), ("Net", "bf16", 2), ("Net", "amp", 4)]
)
def test_the_loss_is_taken_in_the_precision_of_the_framework(root: str, precision: str, item: int) -> None:
    head = Layer(kind="linear", name="head", path=((root, root),), output_shapes=((8, 100),), params=6500)
    setup = TrainingSetup(batch_size=8, precision=precision)  # type: ignore[arg-type]
    tape, _ = build(ModelSummary(format="torchinfo", layers=(head,), batch_size=8), setup)
    assert tape.sizes[tape.ops[-1].output] == 8 * 100 * item


def test_what_is_not_known_is_counted() -> None:
    profile = profile_summary(str(SUMMARIES / "bert_default.torchinfo.txt"), SETUP)
    assert profile.hidden_bytes > 0 and profile.hidden_factor > 0
    shown = profile_summary(str(SUMMARIES / "bert.torchinfo.txt"), SETUP)
    assert shown.hidden_bytes == 0 and shown.doubt_bytes > 0 and shown.assumed == 0
    printed = profile_summary(str(SUMMARIES / "residual.repr.txt"), SETUP)
    assert printed.assumed == 1
    given = TrainingSetup(batch_size=8, input_shape=(8, 3, 64, 64))
    assert profile_summary(str(SUMMARIES / "residual.repr.txt"), given).assumed == 0
    loose = with_shapes(parse_text((SUMMARIES / "vit.repr.txt").read_text(), path="x"), SETUP)
    assert loose.layers


def test_what_is_scaled_up_is_no_larger_than_the_input() -> None:
    ups = "".join(f"  ({at}): Upsample(scale_factor=8.0, mode='nearest')\n" for at in range(4))
    text = f"Net(\n  (a): Conv2d(3, 8, kernel_size=(3, 3), padding=(1, 1))\n{ups})\n"
    setup = TrainingSetup(batch_size=2, input_shape=(2, 3, 32, 32))
    assert profile_summary(text, setup).largest_bytes == 4 * 2 * 8 * 32 * 32
