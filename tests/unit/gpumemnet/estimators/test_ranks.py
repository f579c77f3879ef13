"""What each process of a job of several holds next to its tensors: NCCL, as measured, and a note where it was not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from paths import CHECKOUT, SUMMARIES

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "bench" / "scripts"))
from script_errors import WITHIN, ComparedScript, compared, read
from training_scripts import ranks

from gpumemnet.estimators.registry import estimate
from gpumemnet.gpus import DEFAULT_GPU, gpu_named, gpu_of_memory
from gpumemnet.names import Source
from gpumemnet.profile.build import profile_summary
from gpumemnet.profile.record import ModelProfile
from gpumemnet.training import TrainingSetup
from gpumemnet.units import GIB, MIB

RESULTS = CHECKOUT / "docs" / "results"
MEASURED, MISSING = compared(
    read([RESULTS / "measured_scripts.jsonl", RESULTS / "traced_scripts.jsonl"]), gpu_named("h200")
)
ONE = profile_summary(str(SUMMARIES / "residual.torchsummary.txt"), TrainingSetup(batch_size=8))
TWO = ONE._replace(gpus=2)
TRACED = ONE._replace(source=Source.TRACE)


def test_every_script_was_measured() -> None:
    assert not MISSING


@pytest.mark.parametrize("found", MEASURED, ids=lambda found: found.script)
def test_no_measured_script_is_above_its_bound(found: ComparedScript) -> None:
    assert found.measured_bytes <= found.bound_bytes


@pytest.mark.parametrize(
    "found", [found for found in MEASURED if ranks(found.script) > 1], ids=lambda found: found.script
)
def test_a_rank_is_estimated_as_near_as_a_script_of_its_own(found: ComparedScript) -> None:
    assert abs(found.error) <= WITHIN


@pytest.mark.parametrize("name", ["rad", "boosted"])
def test_a_process_of_two_holds_nccl_next_to_its_base(name: str) -> None:
    one, two = (estimate(profile, estimator=name) for profile in (ONE, TWO))
    nccl = gpu_named(DEFAULT_GPU).nccl_bytes
    assert nccl > 500 * MIB
    assert two.breakdown_bytes["base"] - one.breakdown_bytes["base"] == nccl
    assert two.upper_bytes - one.upper_bytes >= nccl and two.estimate_bytes - one.estimate_bytes >= nccl
    assert sum(two.breakdown_bytes.values()) == two.estimate_bytes


def test_a_text_of_several_processes_counts_the_buckets_of_gradients() -> None:
    one, two = (estimate(profile).breakdown_bytes for profile in (ONE, TWO))
    assert sum(two.values()) - sum(one.values()) >= gpu_named(DEFAULT_GPU).nccl_bytes + ONE.gradient_bytes


@pytest.mark.parametrize("profile", [ONE, TRACED], ids=["text", "trace"])
def test_what_was_not_measured_is_said(profile: ModelProfile) -> None:
    def reported(gpus: int, gpu: str) -> list[str]:
        answer = estimate(profile._replace(gpus=gpus), gpu=gpu)
        return [line for line in answer.warnings if "NCCL" in line]

    assert reported(1, "h200") == reported(2, "h200") == reported(1, "a100") == []
    (more,), (other,), (both,) = reported(4, "h200"), reported(2, "a100"), reported(8, "a100")
    assert "846 MiB" in more and "between 2 ranks, not 4" in more and "another GPU" not in more
    assert "another GPU" in other and "ranks" not in other
    assert "not 8" in both and "another GPU" in both


def test_an_unknown_gpu_takes_the_references_and_says_so() -> None:
    answer = estimate(TWO, gpu=gpu_of_memory("rtx 9999", 32 * GIB))
    assert any("NCCL" in line and "another GPU" in line for line in answer.warnings)
