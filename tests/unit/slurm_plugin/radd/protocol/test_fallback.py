from __future__ import annotations

from typing import Any

import pytest

from slurm_plugin.core.config.load import Config, parse_config
from slurm_plugin.radd.protocol.fallback import HOLDS_S, fallback_of


def config(mode: str = "enforce", **partition: Any) -> Config:
    settings = {"collocate": True, "shards_per_gpu": 39, **partition}
    return parse_config({"mode": mode, "partition": {"gpu": settings, "plain": {}}}, origin="rad.toml")


def partitions(made: Config, *, whole_as_gpu: bool = False, leave_jobs: bool = False) -> Any:
    left = fallback_of(made, {"gpu": whole_as_gpu}, leave_jobs=leave_jobs, gpu_defaults={}, now_s=100.0)
    assert left["until_s"] == 100 + HOLDS_S
    return left["partitions"]


def test_only_where_a_gpu_of_ones_own_is_all_its_shards() -> None:
    assert partitions(config()) == {"gpu": {"shards": 39, "gpu_type": ""}}
    assert partitions(config(), whole_as_gpu=True) == {}


@pytest.mark.parametrize("made", [config("observe"), config("off"), config(default="leave")])
def test_what_radd_would_leave_alone_is_left_alone_without_it(made: Config) -> None:
    assert partitions(made) == {}
    assert partitions(config(), leave_jobs=True) == {}
