"""The bound's arithmetic: kinds of jobs, conformal margins, and blocks that checkpointing runs again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import SUMMARIES

from gpumemnet.estimators import conformal, rad
from gpumemnet.gpus import gpu_named
from gpumemnet.profile.build import profile_summary
from gpumemnet.summaries.graph.checkpoint_blocks import repeated
from gpumemnet.summaries.texts.records import Layer
from gpumemnet.training import TrainingSetup

SHOWN = profile_summary(str(SUMMARIES / "residual.torchsummary.txt"), TrainingSetup(batch_size=8))


def test_the_margin_leaves_the_promised_share_below() -> None:
    excesses = [number / 1000 for number in range(1000)]
    assert conformal.conformal_margin(excesses, 0.9) == pytest.approx(0.9, abs=0.002)
    assert conformal.conformal_margin([0.5, -0.2], 0.99) == 0.5


@given(st.lists(st.floats(-1, 3), min_size=1, max_size=60), st.sampled_from(conformal.LEVELS))
def test_equal_weights_are_none(excesses: list[float], level: float) -> None:
    plain = conformal.conformal_margin(excesses, level)
    assert conformal.conformal_margin(excesses, level, [0.25] * len(excesses)) == plain


def test_a_lineage_of_many_runs_counts_as_one() -> None:
    errors, weights = [0.1] * 50 + [0.5], [1 / 50] * 50 + [1.0]
    assert conformal.conformal_margin(errors, 0.9) == 0.1
    assert conformal.conformal_margin(errors, 0.9, weights) == 0.5


def test_jobs_that_are_known_least_are_calibrated_apart() -> None:
    assert conformal.kind(SHOWN) == "torchsummary"
    assert conformal.kind(SHOWN._replace(recurrents=1)) == "torchsummary_recurrent"
    printed = SHOWN._replace(source="module_repr")
    assert conformal.kind(printed._replace(assumed=1)) == "module_repr_assumed"
    assert (
        conformal.kind(printed) == "module_repr_convs"
        and conformal.kind(printed._replace(convs=0)) == "module_repr"
    )


def test_texts_that_hide_levels_are_calibrated_apart() -> None:
    assert conformal.kind(SHOWN._replace(source="torchinfo")) == "torchinfo"
    assert conformal.kind(SHOWN._replace(source="torchinfo", hidden_bytes=1)) == "torchinfo_hidden"


def test_a_layer_of_an_unknown_kind_hides_what_it_does() -> None:
    assert conformal.kind(SHOWN._replace(source="torchinfo", unknown=1)) == "torchinfo_hidden"


def test_kinds_that_too_few_runs_calibrate_get_the_quantiles_of_all() -> None:
    table = {"any": [0.3], "torchsummary": [0.1]}
    assert conformal.widths(table, SHOWN) == [0.1]
    assert conformal.widths(table, SHOWN._replace(source="keras")) == [0.3]


def test_quantiles_rise_from_the_estimate_on_and_the_bound_has_a_floor() -> None:
    found = conformal.quantiles([number / 1000 - 0.5 for number in range(1000)])
    assert found == sorted(found)
    assert found[0] == pytest.approx(0.0, abs=0.002)
    assert dict(zip(conformal.LEVELS, found, strict=True))[0.9] == pytest.approx(0.4, abs=0.002)
    sure = dict(zip(conformal.LEVELS, conformal.quantiles([-0.1] * 50), strict=True))
    assert (sure[0.9], sure[conformal.CONFIDENCE]) == (0.0, conformal.LEAST_WIDTH)


def test_the_bound_is_the_quantile_of_its_confidence() -> None:
    answer = rad.estimate(SHOWN, gpu_named("h200"))
    assert answer.confidence is not None
    assert answer.quantile(answer.confidence) == answer.upper_bytes
    assert answer.estimate_bytes <= answer.quantile(0.5) <= answer.quantile(0.9) < answer.upper_bytes


def rows(*kinds: str) -> tuple[Layer, ...]:
    return tuple(Layer(kind=kind, name=kind, is_block=kind.startswith("some")) for kind in kinds)


def test_blocks_are_what_lies_between_the_ends_of_the_container_repeated_most() -> None:
    inside = ("conv2d", "relu", "someblock")
    assert repeated(rows("conv2d", *inside, *inside, "linear")) == {1: 1, 2: 1, 3: 1, 4: 2, 5: 2, 6: 2}
    assert repeated(rows("conv2d", *inside, "linear")) == {}
    assert repeated(rows("conv2d", "linear")) == {}


def test_checkpointing_helps_a_torchsummary_text_too() -> None:
    table = ["Layer (type) Output Shape Param #", "=" * 60, "Conv2d-1 [-1, 64, 64, 64] 1,792"]
    for _ in range(6):
        table += ["Conv2d-2 [-1, 64, 64, 64] 36,928", "ReLU-3 [-1, 64, 64, 64] 0"] * 3
        table += ["SomeBlock-4 [-1, 64, 64, 64] 0"]
    total = 1792 + 18 * 36928
    text = "\n".join([*table, "=" * 60, f"Total params: {total:,}", f"Trainable params: {total:,}", ""])
    plain, again = (
        profile_summary(text, TrainingSetup(batch_size=64, gradient_checkpointing=on)) for on in (False, True)
    )
    assert again.forward_end_bytes < 0.75 * plain.forward_end_bytes


def test_a_text_that_hides_little_books_less_than_one_that_hides_much() -> None:
    table = {"torchinfo_hidden": [0.4], conformal.ANY: [9.0]}

    def width(share: float, unknown: int = 0) -> float:
        hides = SHOWN._replace(
            source="torchinfo", reserved_bytes=1000, hidden_bytes=int(1000 * share), unknown=unknown
        )
        return conformal.widths(table, hides)[0]

    assert 0.2 < width(0.01) < width(0.1) < width(0.2) == width(0.9) == 0.4
    assert width(0.01, unknown=1) == 0.4  # what a layer of an unknown kind holds is not in the share
    assert conformal.scale(SHOWN) == 1.0
    assert conformal.widths({conformal.ANY: [9.0]}, SHOWN._replace(source="torchinfo", hidden_bytes=1)) == [
        9.0
    ]
