"""Texts whose numbers cannot be those of a model, as the fuzzer found them: an answer or one clear line."""

from __future__ import annotations

import pytest

from gpumemnet.errors import GpuMemNetError
from gpumemnet.estimators.registry import estimate
from gpumemnet.profile.build import profile_with_warnings
from gpumemnet.training import TrainingSetup


def torchsummary(*rows: str) -> str:
    head = f"{'Layer (type)':>20}  {'Output Shape':>25} {'Param #':>15}"
    return "\n".join(
        ["-" * 64, head, "=" * 64, *rows, "=" * 64, "Total params: 9", "Trainable params: 9", ""]
    )


def torchinfo(*rows: str) -> str:
    columns = ("Layer (type:depth-idx)", "Input Shape", "Output Shape", "Param #")
    head = " ".join(f"{column:<24}" for column in columns)
    return "\n".join(
        ["=" * 96, head, "=" * 96, *rows, "=" * 96, "Total params: 9", "Trainable params: 9", ""]
    )


CONV, LINEAR = "Conv2d-1  [-1, 8, 8, 8]  224", "Linear-2  [-1, 4]  4"
BROKEN = {
    "a first convolution of no channels": torchsummary("Conv2d-1  [-1, 0, 8, 8]  5", "Linear-2  [-1, 4]  20"),
    "a branch of no features": torchsummary(
        "Linear-1  [-1, 7]  56", "ReLU-2  [-1, 8, 0]  0", "ReLU-3  [-1, 7]  0", LINEAR
    ),
    "no tokens": torchsummary("Linear-1  [-1, 5, 6]  42", "LayerNorm-2  [-1, 0, 6]  12"),
    "windows of no tokens": torchsummary(CONV, "Linear-2  [-1, 0, 8]  72"),
    "all empty": torchsummary("Linear-1  [-1, 0]  8", "ReLU-2  [-1, 0]  0"),
    "a convolution of a vector": torchinfo(
        "Net                                 [2, 3, 8, 8]    [2, 4]           --",
        "├─Flatten: 1-1                      [2, 3, 8, 8]    [192]            --",
        "├─ReLU: 1-2                         [192]           [192]            --",
        "├─Conv2d: 1-3                       --              [2, 8, 8, 8]     7",
    ),
    "a norm that holds more than it has": (
        "Net(\n  (bn): BatchNormAct2d(\n    8, eps=1e-05\n    (act): Linear(8, 8), 72 params\n  ), 32 params\n)\n"
    ),
    "a cut-off block that reads nothing": torchinfo(
        "Net                                 [2, 3, 8, 8]    [2, 4]           --",
        "├─Conv2d: 1-1                       [2, 3, 8, 8]    [2, 8, 8, 8]     224",
        "├─InvertedResidual: 1-2             [2, 0, 8, 8]    [2, 16, 8, 8]    900",
        "├─BasicBlock: 1-3                   [2, 0, 8, 8]    [2, 16, 8, 8]    900",
        "├─Attention: 1-4                    [2, 0, 8]       [2, 4, 8]        900",
    ),
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_broken_numbers_are_an_answer_or_one_line(text: str, checkpointing: bool, precision: str) -> None:
    setup = TrainingSetup(batch_size=8, precision=precision, gradient_checkpointing=checkpointing)
    try:
        profile, _ = profile_with_warnings(text, setup)
    except GpuMemNetError as exc:
        assert "\n" not in str(exc)
    else:
        result = estimate(profile)
        assert 0 < result.estimate_bytes <= result.upper_bytes
