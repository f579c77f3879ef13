from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from installed import TEXT_ESTIMATORS
from paths import MODELS, SUMMARIES

from gpumemnet.errors import SetupError, SummaryError
from gpumemnet.estimators.registry import ESTIMATORS, estimate
from gpumemnet.profile.build import profile_summary, profile_with_warnings
from gpumemnet.profile.record import MAX_TEXT, ModelProfile
from gpumemnet.training import TrainingSetup
from gpumemnet.units import MIB

RESIDUAL = str(SUMMARIES / "residual.torchsummary.txt")


def profile(**setup: object) -> ModelProfile:
    return profile_summary(RESIDUAL, TrainingSetup(**{"batch_size": 64, **setup}))  # type: ignore[arg-type]


def test_it_travels_as_short_plain_text() -> None:
    text = profile().to_text()
    assert len(text) <= MAX_TEXT
    assert re.fullmatch(r"[A-Za-z0-9._~-]+", text)
    assert ModelProfile.from_text(text) == profile()
    assert ModelProfile.from_text(text).key == profile().key
    assert profile(batch_size=65).key != profile().key


@given(st.text(max_size=700))
def test_any_text_is_a_profile_or_an_error(text: str) -> None:
    with pytest.raises(SummaryError):
        ModelProfile.from_text(text)


@given(st.data())
def test_a_forged_profile_gives_a_sane_estimate_or_an_error(data: st.DataObject) -> None:
    words = profile().to_text().split(".")
    at = data.draw(st.integers(0, len(words) - 1))
    words[at] = data.draw(st.text(alphabet="0123456789abcz-.A é", max_size=14))
    try:
        forged = ModelProfile.from_text(".".join(words))
    except SummaryError:
        return
    result = estimate(forged)
    assert 0 < result.estimate_bytes <= result.upper_bytes < 1 << 60
    assert all(value >= 0 for value in result.breakdown_bytes.values())


@pytest.mark.parametrize("estimator", sorted({*ESTIMATORS} & {*TEXT_ESTIMATORS}))
def test_every_estimator_answers_with_the_six_parts(estimator: str) -> None:
    result = estimate(profile(), estimator=estimator)
    assert list(result.breakdown_bytes) == [
        "base",
        "parameters",
        "gradients",
        "optimizer",
        "activations",
        "workspace",
    ]
    assert 0 < result.estimate_bytes <= result.upper_bytes
    assert result.estimator == estimator


def test_the_parts_add_up() -> None:
    result = estimate(profile())
    assert sum(result.breakdown_bytes.values()) == result.estimate_bytes


def test_memory_grows_with_batch_optimizer_and_width() -> None:
    assert profile(batch_size=128).saved_bytes == 2 * profile().saved_bytes
    assert profile(optimizer="sgd").optimizer_bytes == 0
    assert profile(optimizer="adam").optimizer_bytes == 2 * profile().gradient_bytes
    assert profile(precision="amp").saved_bytes < profile().saved_bytes
    assert profile(precision="bf16").parameter_bytes < profile().parameter_bytes


def test_checkpointing_keeps_less() -> None:
    path = str(SUMMARIES / "residual_all_columns.torchinfo.txt")
    plain = profile_summary(path, TrainingSetup(batch_size=256))
    less = profile_summary(path, TrainingSetup(batch_size=256, gradient_checkpointing=True))
    assert less.forward_end_bytes < 0.8 * plain.forward_end_bytes
    assert less.allocated_bytes < plain.allocated_bytes


def test_formats_of_one_model_agree() -> None:
    setup = TrainingSetup(batch_size=64, input_shape=(64, 3, 64, 64))
    peaks = {
        path.name: profile_summary(str(path), setup).reserved_bytes / MIB
        for path in SUMMARIES.glob("residual*.txt")
        if "depth2" not in path.name and "no_input" not in path.name
    }
    assert len(peaks) == 9
    assert max(peaks.values()) <= 1.06 * min(peaks.values()), peaks


@pytest.mark.parametrize(
    ("example", "batch_size", "giga"),
    [("resnet18", 32, 58.05), ("resnet50", 64, 261.71), ("resnet152", 64, 736.88)],
)
def test_multiply_adds_are_those_that_torchinfo_counts(example: str, batch_size: int, giga: float) -> None:
    path = MODELS / f"{example}_torchinfo.txt"
    assert f"mult-adds (Units.GIGABYTES): {giga}" in path.read_text()
    one = profile_summary(str(path), TrainingSetup(batch_size=batch_size))
    two = profile_summary(str(path), TrainingSetup(batch_size=2 * batch_size))
    assert one.mega_mult_adds == pytest.approx(giga * 1000, rel=0.005)
    assert two.mega_mult_adds == pytest.approx(2 * one.mega_mult_adds, rel=0.001)


def test_attention_grows_with_the_square_of_its_tokens() -> None:
    """Layers of BERT count once a token; what is above that is attention, two products of its scores."""
    text = str(SUMMARIES / "bert.repr.txt")
    found = [
        profile_summary(text, TrainingSetup(batch_size=4096, seq_len=n)).mega_mult_adds
        for n in (64, 128, 256)
    ]
    assert found[2] - 2 * found[1] == pytest.approx(4 * (found[1] - 2 * found[0]), rel=0.05)


def test_an_open_batch_size_is_requested() -> None:
    with pytest.raises(SetupError, match=r"leaves the batch size open; add batch_size=N"):
        profile_summary(RESIDUAL, TrainingSetup())


def test_a_batch_of_one_is_reported_unless_it_is_stated() -> None:
    text = (SUMMARIES / "encoder.torchinfo.txt").read_text(encoding="utf-8").replace("[4, ", "[1, ")
    assert any("batch size 1, as" in line for line in profile_with_warnings(text, TrainingSetup())[1])
    assert profile_with_warnings(text, TrainingSetup(batch_size=1))[1] == ()


def test_unknown_layers_are_named() -> None:
    text = Path(RESIDUAL).read_text(encoding="utf-8").replace("Linear-", "Wombat-")
    _, warnings = profile_with_warnings(text, TrainingSetup(batch_size=8))
    assert warnings == ("unknown layer 'Wombat' (1x): counted by its shapes",)


def test_a_cut_off_list_of_absurd_size_costs_no_time_and_no_memory() -> None:
    text = (SUMMARIES / "bert_default.torchinfo.txt").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if "ModuleList: 3-" in line)
    blown_up = text.replace(row, row.replace(row.split()[-1], "107,159,147,970,339"))
    assert blown_up != text
    with pytest.raises(SummaryError, match="no model is of that size"):
        profile_summary(blown_up, TrainingSetup(batch_size=4))
