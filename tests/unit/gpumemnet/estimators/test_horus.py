from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import MODELS

from gpumemnet.estimators import horus
from gpumemnet.gpus import gpu_named
from gpumemnet.profile.build import profile_summary
from gpumemnet.profile.record import ModelProfile
from gpumemnet.training import TrainingSetup

PROFILE = profile_summary(str(MODELS / "mlp_torchinfo.txt"), TrainingSetup(batch_size=8))
GPU = gpu_named("h200")


def job(batch: int, activations: int, parameters: int, precision: str = "fp32") -> ModelProfile:
    item = 2 if precision == "bf16" else 4
    return PROFILE._replace(
        batch_size=batch,
        parameters=parameters,
        output_sum_bytes=batch * activations * item,
        precision=precision,  # type: ignore[arg-type]
    )


@given(batch=st.integers(1, 512), activations=st.integers(0, 10**7), parameters=st.integers(0, 10**8))
def test_the_formula_of_the_paper(batch: int, activations: int, parameters: int) -> None:
    """(B * A + P + B * P) * 4 bytes, and no bound but that."""
    found = horus.estimate(job(batch, activations, parameters), GPU)
    expected = (batch * activations + parameters + batch * parameters) * 4
    assert (found.estimate_bytes, found.upper_bytes, found.confidence) == (expected, expected, None)
    assert sum(found.breakdown_bytes.values()) == expected


@pytest.mark.parametrize(("precision", "n_bytes"), [("fp32", 4), ("amp", 4), ("bf16", 2)])
def test_an_element_is_as_wide_as_the_weights(precision: str, n_bytes: int) -> None:
    assert horus.estimate(job(2, 10, 100, precision), GPU).estimate_bytes == (20 + 100 + 200) * n_bytes


def test_it_knows_neither_base_nor_optimizer() -> None:
    found = horus.estimate(job(2, 10, 100), GPU)
    assert (found.breakdown_bytes["base"], found.breakdown_bytes["optimizer"]) == (0, 0)
