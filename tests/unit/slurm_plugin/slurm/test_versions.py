from __future__ import annotations

import pytest

from slurm_plugin.core.booking.available_gres import AvailableGres
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.slurm.versions import known, release, traits, whole_as_gpu


@pytest.mark.parametrize(
    ("version", "form", "request_"),
    [
        ((22, 5, 8), "auto", "shard:40"),  # shows gpu:1 after a requeue and gives the old shards
        ((23, 11, 4), "auto", "shard:40"),
        ((23, 11, 5), "auto", "gpu:1"),
        ((24, 11, 5), "auto", "gpu:1"),
        ((26, 5, 5), "auto", "gpu:1"),
        ((26, 5, 5), "shards", "shard:40"),
        ((22, 5, 8), "gpu", "gpu:1"),
    ],
)
def test_a_whole_gpu_is_requested_in_a_form_that_slurm_honours(
    version: tuple[int, int, int], form: str, request_: str
) -> None:
    partition = PartitionConfig(collocate=True, shards_per_gpu=40, exclusive_form=form)  # type: ignore[arg-type]
    available = AvailableGres.of(partition, (), whole_as_gpu=whole_as_gpu(partition, version))
    assert available.whole(None) == request_


def test_rows_of_the_table() -> None:
    old, middle, new = traits((22, 5, 8)), traits((24, 11, 5)), traits((26, 5, 5))
    assert (old.gres_prefix, middle.gres_prefix, new.gres_prefix) == ("gres:", "gres/", "gres/")
    assert [t.keeps_gpu_and_shard_apart for t in (old, middle, new)] == [False, True, True]
    assert [t.spreads_shards for t in (old, middle, new)] == [False, True, True]
    assert [t.plans_by_kind for t in (old, middle, new)] == [False, True, False]


@pytest.mark.parametrize("text", ["21.08", "27.05", "24.11.5.1", "slurm", "", "2405"])
def test_a_release_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no Slurm from 22.05 to 26.05, such as 24.11"):
        release(text)


def test_versions_outside_the_table_are_reported() -> None:
    assert known((22, 5, 0)) and known((26, 5, 5))
    assert not known((21, 8, 8)) and not known((26, 11, 0))
