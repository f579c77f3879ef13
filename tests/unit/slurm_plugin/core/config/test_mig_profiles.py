"""The smallest MIG instance that holds the estimate, where a partition requests it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurm_plugin.core.booking.decide import decide
from slurm_plugin.core.booking.request import request_from
from slurm_plugin.core.config.load import parse_config
from slurm_plugin.core.config.mig_profiles import parse_profiles, smallest_profile
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.records.submission import MemoryEstimate, Rewrite, UserDirectives
from slurm_plugin.core.units import GIB

# GiB of one instance as `nvidia-smi mig -lgip` showed on an A100 of 40 GB and an H200.
RECORDED = {
    "1g.5gb": 4.75,
    "1g.10gb": 9.62,
    "2g.10gb": 9.75,
    "3g.20gb": 19.62,
    "7g.40gb": 39.5,
    "1g.18gb": 16.0,
}
PROFILES = "3g.40gb 1g.10gb 2g.20gb 7g.80gb"


def partition(**changes: Any) -> dict[str, Any]:
    return {
        "partition": {"mig": {"mig": "map", "mig_profiles": PROFILES, **changes}},
        "default_partition": "mig",
    }


def decided(upper_gib: float | None, mode: str = "enforce", **message: Any) -> Rewrite:
    config = parse_config({"mode": mode, **partition()}, origin="rad.toml")
    estimate = None
    if upper_gib is not None:
        upper = int(upper_gib * GIB)
        estimate = MemoryEstimate(estimate_bytes=upper, upper_bytes=upper, confidence=0.99, source="rad")
    request = request_from({"user_id": 1000, **message})
    return decide(request, UserDirectives(memory_bytes=GIB), estimate, config=config)


@pytest.mark.parametrize(("name", "gib"), RECORDED.items())
def test_what_we_count_on_is_there(name: str, gib: float):
    (profile,) = parse_profiles(name)
    assert 0.85 * gib * GIB < profile.usable_bytes <= gib * GIB


def test_the_smallest_that_holds_it():
    profiles = parse_profiles(PROFILES)
    found = [smallest_profile(gib * GIB, profiles) for gib in (1, 9, 20, 40, 71)]
    assert [profile and profile.name for profile in found] == [
        "1g.10gb",
        "2g.20gb",
        "3g.40gb",
        "7g.80gb",
        None,
    ]


@pytest.mark.parametrize("word", ["10gb", "1g.10", "g.gb", "1g.10gb;rm"])
def test_a_word_that_is_no_profile(word: str):
    with pytest.raises(ConfigError, match="is no MIG profile"):
        parse_profiles(word)


@pytest.mark.parametrize(
    "message", [{"gres": "gres:gpu:1"}, {"gres": "gres/gpu=1"}, {"tres_per_job": "gres:gpu:1"}]
)
def test_one_gpu_becomes_an_instance(message: dict[str, str]):
    rewrite = decided(6, **message)
    assert rewrite.fields["gres"] == "gpu:1g.10gb:1"
    assert rewrite.booking is None
    assert rewrite.messages == ("RAD: estimated 6.0 GiB; booked one MIG instance 1g.10gb",)


@pytest.mark.parametrize(
    "message",
    [
        {"gres": "gres:gpu:1g.10gb:1"},
        {"gres": "gres:gpu:a100:1"},
        {"gres": "gres:gpu:2"},
        {"gres": "gres:shard:2"},
        {"gres": "gres:gpu:1", "min_nodes": 2},
        {"gres": "gres:gpu:1", "heterogeneous": True},
        {},
    ],
)
def test_everything_else_is_left_alone(message: dict[str, Any]):
    assert replace(decided(6, **message), messages=()) == Rewrite(reason="mig")


def test_an_unknown_need_is_left_alone():
    assert decided(None, gres="gres:gpu:1") == Rewrite(reason="mig")


def test_a_need_above_the_largest_is_said():
    rewrite = decided(75, gres="gres:gpu:1")
    assert (rewrite.fields, rewrite.reason) == ({}, "mig: too large")
    assert "the largest MIG instance has 70.4 GiB" in rewrite.messages[0]


def test_observe_changes_nothing():
    assert decided(6, mode="observe", gres="gres:gpu:1") == Rewrite(reason="observe: gpu:1g.10gb:1")


@pytest.mark.parametrize("changes", [{"mig_profiles": ""}, {"collocate": True, "shards_per_gpu": 10}])
def test_an_impossible_partition_is_refused(changes: dict[str, Any]):
    with pytest.raises(ConfigError, match=r"partition\.mig has mig = .map.; it needs mig_profiles"):
        parse_config(partition(**changes), origin="rad.toml")


def test_a_wrong_profile_names_its_key():
    with pytest.raises(
        ConfigError, match=r"rad\.toml: partition\.mig\.mig_profiles: 'big' is no MIG profile"
    ):
        parse_config(partition(mig_profiles="big"), origin="rad.toml")
