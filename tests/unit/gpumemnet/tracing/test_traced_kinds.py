"""What a trace saw next to the tensors: cuDNN's trials, a process without cuBLAS, NCCL with a single rank."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import SUMMARIES

from gpumemnet.estimators.registry import estimate
from gpumemnet.gpus import DEFAULT_GPU, gpu_named
from gpumemnet.names import Source
from gpumemnet.profile.build import profile_summary
from gpumemnet.profile.record import ModelProfile
from gpumemnet.tracing.trace.result import BENCHMARK_FACTORS, QUANTILE_FACTORS, quantile_bytes
from gpumemnet.training import TrainingSetup
from gpumemnet.units import GIB, MIB

GPU = gpu_named(DEFAULT_GPU)
PLAIN = profile_summary(str(SUMMARIES / "residual.torchsummary.txt"), TrainingSetup(batch_size=8))._replace(
    source=Source.TRACE,
    attentions=0,
    recurrents=0,
)


def reported(**changes: int) -> ModelProfile:
    return PLAIN._replace(**changes)  # type: ignore[arg-type]


def test_trials_of_cudnn_widen_the_quantiles_and_leave_the_estimate() -> None:
    plain, tries = estimate(PLAIN), estimate(reported(benchmark=1))
    assert tries.estimate_bytes == plain.estimate_bytes
    assert tries.upper_bytes > plain.upper_bytes
    assert all(tries.quantile(share) >= plain.quantile(share) for share in (0.8, 0.9, 0.95, 0.99))
    more = round((tries.upper_bytes - plain.upper_bytes) / MIB)
    (note,) = set(tries.warnings) - set(plain.warnings)
    assert note.startswith(f"cudnn.benchmark is on: the bound is {more} MiB higher")


def test_the_factors_of_trials_are_for_the_same_shares_and_no_smaller() -> None:
    assert [share for share, _ in BENCHMARK_FACTORS] == [share for share, _ in QUANTILE_FACTORS]
    assert all(
        tries >= plain for (_, tries), (_, plain) in zip(BENCHMARK_FACTORS, QUANTILE_FACTORS, strict=True)
    )


@given(reserved=st.integers(0, 141 * GIB), workspace=st.integers(0, 10 * GIB), tries=st.booleans())
def test_quantiles_rise_to_the_bound(reserved: int, workspace: int, tries: bool) -> None:
    sizes = [size for _, size in quantile_bytes(reserved, workspace, benchmark=tries)]
    assert sizes == sorted(sizes) and sizes[0] >= 0


@pytest.mark.parametrize(("convs", "linears", "less"), [(1, 0, True), (1, 1, False), (0, 0, False)])
def test_convolutions_alone_never_load_cublas(convs: int, linears: int, less: bool) -> None:
    base = estimate(reported(convs=convs, linears=linears)).breakdown_bytes["base"]
    whole = GPU.conv_base_bytes if convs else GPU.base_bytes
    assert (base < whole) == less and base <= whole


def test_a_single_rank_holds_less_for_nccl_than_one_of_two() -> None:
    none, alone, pair = (
        estimate(reported(**changes)).breakdown_bytes["base"]
        for changes in ({}, {"nccl_alone": 1}, {"gpus": 2})
    )
    assert alone - none == GPU.nccl_alone_bytes > 500 * MIB
    assert alone < pair
    assert estimate(reported(nccl_alone=1, gpus=2)).breakdown_bytes["base"] == pair
