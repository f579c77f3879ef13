from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from paths import MODELS

from gpumemnet.directives.values import DEFAULT_CONFIDENCE, LEAST_CONFIDENCE, MOST_CONFIDENCE
from gpumemnet.estimators import tree_model
from gpumemnet.profile.record import ModelProfile
from slurm_plugin.core.booking.confidence import SHARES
from slurm_plugin.core.comments.signed_comment import COMMENT_LIMIT, user_words, with_profile
from slurm_plugin.core.config.partition import PartitionConfig
from slurm_plugin.core.errors import ConfigError, EstimateError
from slurm_plugin.core.records.submission import LEAST_CONFIDENCE as LEAST
from slurm_plugin.core.records.submission import MOST_CONFIDENCE as MOST
from slurm_plugin.core.records.submission import UserDirectives
from slurm_plugin.core.units import GIB
from slurm_plugin.directives import directives_of, profile_of, user_directives_of
from slurm_plugin.estimate import Estimator

SUMMARIES = sorted(path for path in MODELS.glob("*.txt") if path.name != "broken.txt")


def profile(path: Path, words: str = "batch_size=8") -> str:
    directives = directives_of(f"#RAD model={path.name} {words}\n", "job.sh", "")
    assert directives is not None
    read = profile_of(directives, (path.parent,))
    assert read is not None
    return read[0]


@pytest.mark.parametrize("path", SUMMARIES, ids=lambda path: path.stem)
def test_every_example_travels_in_a_comment_and_has_an_estimate(path: Path) -> None:
    text = profile(path)
    comment = with_profile("a few words of the user's own", text)
    assert comment is not None and len(comment) < COMMENT_LIMIT
    estimate = Estimator().estimate(user_directives_of(None, text))
    assert estimate is not None
    assert 0 < estimate.estimate_bytes <= estimate.upper_bytes
    shares, sizes = zip(*estimate.quantiles, strict=True)
    assert shares == SHARES and list(sizes) == sorted(sizes)
    assert sizes[SHARES.index(0.99)] == estimate.upper_bytes
    assert estimate.profile_key == ModelProfile.from_text(text).key


def test_a_larger_batch_needs_more() -> None:
    path = MODELS / "resnet18_torchinfo.txt"
    needs = [
        Estimator().estimate(UserDirectives(profile=profile(path, f"batch_size={size}"))) for size in (8, 256)
    ]
    assert needs[0] is not None and needs[1] is not None
    assert needs[0].estimate_bytes < needs[1].estimate_bytes


def test_what_is_stated_wins_and_keeps_the_profiles_key() -> None:
    text = profile(MODELS / "resnet18_torchinfo.txt")
    stated = Estimator().estimate(UserDirectives(profile=text, memory_bytes=3 * GIB))
    assert stated is not None
    assert (stated.upper_bytes, stated.source, stated.confidence) == (3 * GIB, "stated", None)
    assert stated.profile_key == ModelProfile.from_text(text).key


@pytest.mark.parametrize(
    "broken",
    [
        lambda text: text.partition(".")[0],
        lambda text: "p0" + text[text.index(".") :],
        lambda text: text.rpartition(".")[0],
        lambda text: f"{text}.1",
        lambda text: text.partition(".")[0] + "." + "z" * 500,
        lambda text: "~",
    ],
    ids=["no fields", "another version", "a field less", "a field more", "one long field", "nonsense"],
)
def test_what_is_no_profile_is_an_unknown_need(broken: Callable[[str], str]) -> None:
    text = profile(MODELS / "resnet18_torchinfo.txt")
    assert Estimator().estimate(UserDirectives(profile=text)) is not None
    assert Estimator().estimate(UserDirectives(profile=broken(text))) is None


def test_no_claims_are_an_unknown_need() -> None:
    assert Estimator().estimate(UserDirectives()) is None
    assert directives_of(None, "job.sh", "an ordinary comment") is None
    assert directives_of("#!/bin/sh\ntrue\n", "job.sh", "") is None


def test_every_key_becomes_a_claim() -> None:
    directives = directives_of("#RAD memory=12G policy=collocate retry=no gpus=2\n", "job.sh", "")
    assert user_directives_of(directives, "p1.0") == UserDirectives(
        profile="p1.0", memory_bytes=12 * GIB, policy="collocate", retry=False, gpus=2
    )


def test_our_own_marks_in_the_comment_are_no_words_of_the_user() -> None:
    comment = "rad:memory=4G rad.profile:p1.0 rad2:whole:gpus=1:try=0:retry=1:0123456789abcdef"
    directives = directives_of(None, "job.sh", user_words(comment))
    assert directives is not None and directives.memory_bytes == 4 * GIB


def test_errors_are_translated_and_keep_their_line() -> None:
    with pytest.raises(EstimateError, match=r"job\.sh:1: .*batch_size"):
        directives_of("#RAD batch_size=0\n", "job.sh", "")
    directives = directives_of("#RAD model=missing.txt\n", "job.sh", "")
    assert directives is not None
    with pytest.raises(EstimateError, match=r"missing\.txt: no such file"):
        profile_of(directives, (MODELS,))


def test_a_site_learns_at_start_that_a_name_is_wrong() -> None:
    Estimator(name="rad", gpu="").check()
    with pytest.raises(ConfigError, match="estimator is 'unknown'"):
        Estimator(name="unknown").check()
    with pytest.raises(ConfigError, match="abacus"):
        Estimator(gpu="abacus").check()


@pytest.mark.parametrize("name", ["boosted", "mlp_ensemble"])
def test_a_site_learns_at_start_that_an_estimator_has_no_weights_here(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node's package ships those of two; on a GPU every job of a replay had a whole GPU, and no line said so."""
    monkeypatch.setattr("gpumemnet.estimators.tree_model.WEIGHTS", tmp_path)
    tree_model.load.cache_clear()
    with pytest.raises(ConfigError, match=r"rad\.toml: estimator: .*pip install rad-slurm-train"):
        Estimator(name=name).check()
    Estimator(name="rad").check()
    Estimator(name="horus").check()


def test_the_words_of_a_user_and_of_a_site_have_the_same_range() -> None:
    assert (LEAST, MOST) == (LEAST_CONFIDENCE, MOST_CONFIDENCE)
    assert PartitionConfig().confidence == DEFAULT_CONFIDENCE
