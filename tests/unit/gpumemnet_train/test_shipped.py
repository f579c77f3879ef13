"""The weights that ship fit this version, and what they answer makes sense."""

from __future__ import annotations

import pytest

from gpumemnet.estimators import boosted, rad, tree_model
from gpumemnet.gpus import gpus
from gpumemnet.names import OPTIMIZERS, PRECISIONS
from gpumemnet.profile.build import profile_summary
from gpumemnet.profile.record import ModelProfile
from gpumemnet.training import TrainingSetup
from gpumemnet.units import MIB

TEXT = """\
----------------------------------------------------------------
        Layer (type)               Output Shape         Param #
================================================================
            Conv2d-1         [-1, 64, 112, 112]           9,408
       BatchNorm2d-2         [-1, 64, 112, 112]             128
              ReLU-3         [-1, 64, 112, 112]               0
            Conv2d-4          [-1, 128, 56, 56]          73,728
       BatchNorm2d-5          [-1, 128, 56, 56]             256
              ReLU-6          [-1, 128, 56, 56]               0
 AdaptiveAvgPool2d-7            [-1, 128, 1, 1]               0
            Linear-8                 [-1, 1000]         129,000
================================================================
Total params: 212,520
Trainable params: 212,520
"""


def profile(**changes: object) -> ModelProfile:
    return profile_summary(TEXT, TrainingSetup(**({"batch_size": 64} | changes)))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["rad", "boosted"])
def test_weights_load_and_name_their_data(name: str) -> None:
    learned = tree_model.load(name)
    assert len(learned.data_sha256) == 64
    assert all(tree.roots for tree in learned.trees.values())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_bound_is_above_the_estimate_and_parts_sum_to_it(optimizer: str, precision: str) -> None:
    for estimator in (rad.estimate, boosted.estimate):
        answer = estimator(profile(optimizer=optimizer, precision=precision), gpus()["h200"])
        assert gpus()["h200"].base_bytes * 0.8 < answer.estimate_bytes <= answer.upper_bytes
        assert sum(answer.breakdown_bytes.values()) == answer.estimate_bytes
        assert min(answer.breakdown_bytes.values()) >= 0
    assert not rad.estimate(profile(optimizer=optimizer, precision=precision), gpus()["h200"]).warnings


def test_the_base_of_the_site_moves_the_estimate_by_itself() -> None:
    one, other = gpus()["h200"], gpus()["v100"]
    difference = rad.estimate(profile(), one).estimate_bytes - rad.estimate(profile(), other).estimate_bytes
    shift = (one.conv_base_bytes + one.cublas_bytes) - (other.conv_base_bytes + other.cublas_bytes)
    assert abs(difference - shift) < 64 * MIB


def test_a_larger_batch_needs_more() -> None:
    answers = [
        rad.estimate(profile(batch_size=size), gpus()["h200"]).estimate_bytes for size in (32, 256, 2048)
    ]
    assert answers == sorted(answers)
    assert answers[-1] > 3 * answers[0]
