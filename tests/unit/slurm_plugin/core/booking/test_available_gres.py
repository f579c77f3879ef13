"""Partitions with GPUs of several types: what is requested of Slurm fits the type that it names, or any."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.booking.available_gres import AvailableGres, gpus_for
from slurm_plugin.core.booking.decide import decide
from slurm_plugin.core.booking.gres_text import parse_gres
from slurm_plugin.core.booking.request import request_from
from slurm_plugin.core.config.load import Config, GpuType, PartitionConfig, parse_config
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.records.submission import GresItem, MemoryEstimate, Rewrite, UserDirectives
from slurm_plugin.core.units import GIB

MIXED: dict[str, Any] = {
    "collocate": True,
    "gpus": {
        "a100_40": {"shards_per_gpu": 39},
        "a100_80": {"shards_per_gpu": 79},
        "h200": {"gpu_memory_mib": 143_000, "shards_per_gpu": 138, "gpu": "h200"},
    },
}


def config(**changes: Any) -> Config:
    tree = {"default_partition": "gpu", "partition": {"gpu": {**MIXED, **changes}}}
    return parse_config(tree, origin="rad.toml")


def decided(
    gres: str, need_gib: float | None, *, whole_as_gpu: bool = True, stated: UserDirectives | None = None
) -> Rewrite:
    need = None if need_gib is None else round(need_gib * GIB)
    estimate = need and MemoryEstimate(estimate_bytes=need, upper_bytes=need, confidence=0.99, source="rad")
    request = request_from({"user_id": 1000, "gres": gres})
    said = stated or UserDirectives(profile="p" if estimate else None)
    return decide(request, said, estimate or None, config=config(), whole_as_gpu=whole_as_gpu)


@pytest.mark.parametrize(
    ("gres", "need_gib", "requested", "kind"),
    [
        ("gres/gpu:1", 20, "shard:20", "shared"),  # any type has space for that
        ("gres/gpu:1", 50, "shard:50", "shared"),  # only the larger ones have 50 on one GPU
        ("gres/gpu:a100_40:1", 20, "shard:a100_40:20", "shared"),
        ("gres/gpu:h200:1", 100, "shard:h200:100", "shared"),
        ("gres/gpu:a100_40:1", 39, None, "whole"),
        ("gres/gpu:1", 138.5, "gpu:h200:1", "whole"),  # gpu:1 would also be given where it cannot run
    ],
)
def test_a_request_is_booked_by_its_type_or_by_what_is_large_enough(
    gres: str, need_gib: float, requested: str | None, kind: str
) -> None:
    rewrite = decided(gres, need_gib)
    assert rewrite.booking is not None
    assert (rewrite.fields.get("gres"), rewrite.booking.kind) == (requested, kind)
    assert rewrite.booking.shards == sum(item.count for item in parse_gres(requested) if item.name == "shard")


@pytest.mark.parametrize(
    ("gres", "need_gib", "as_gpu", "as_shards"),
    [
        ("gres/gpu:1", None, None, "shard:a100_40:39"),
        ("gres/gpu:1", 20, None, "shard:a100_40:39"),
        ("gres/gpu:1", 50, "gpu:a100_80:1", "shard:a100_80:79"),
        ("gres/gpu:h200:1", 20, None, "shard:h200:138"),
    ],
)
def test_a_gpu_of_its_own_is_all_of_one_type_and_large_enough(
    gres: str, need_gib: float | None, as_gpu: str | None, as_shards: str
) -> None:
    alone = UserDirectives(policy="exclusive")
    assert decided(gres, need_gib, stated=alone).fields.get("gres") == as_gpu
    assert decided(gres, need_gib, stated=alone, whole_as_gpu=False).fields["gres"] == as_shards


@pytest.mark.parametrize(
    ("gres", "need_gib", "says"),
    [
        ("gres/gpu:a100_40:1", 50, "one GPU has 39.0 GiB"),
        ("gres/gpu:1", 150, "one GPU has 139.6 GiB"),
        ("gres/shard:a100_80:80", None, "request at most 79"),
        ("gres/shard:139", None, "request at most 138"),
    ],
)
def test_what_no_gpu_of_the_type_can_hold_is_refused(gres: str, need_gib: float | None, says: str) -> None:
    assert says in (decided(gres, need_gib).refusal or "")


def test_a_type_without_a_table_keeps_its_gpu() -> None:
    rewrite = decided("gres/gpu:l40s:1", 10)
    assert (rewrite.fields, rewrite.booking and rewrite.booking.kind) == ({}, "whole")
    assert "l40s" in rewrite.messages[0]


def test_the_base_memory_is_that_of_the_type_or_of_all_that_may_serve() -> None:
    partition = config().partitions["gpu"]
    assert gpus_for(partition, (GresItem(name="gpu", type="h200"),)) == (partition.gpus["h200"],)
    assert set(gpus_for(partition, (GresItem(name="gpu"),))) == set(partition.gpus.values())
    assert gpus_for(None, ()) == gpus_for(PartitionConfig(), ()) == (GpuType(),)
    alike = PartitionConfig(collocate=True, shards_per_gpu=40)
    assert gpus_for(alike, (GresItem(name="gpu", type="h200"),)) == (GpuType(),)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"gpu_type": "h200"}, "remove one"),
        ({"gpus": {"h200": {}}}, "partition.gpu.gpus.h200 has no size"),
        ({"gpus": {"h200": {"shards": 3}}}, "did you mean partition.gpu.gpus.h200.shards_per_gpu"),
        ({"gpus": {"h200": 138}}, "must be a table, as in [partition.gpu.gpus.h200]"),
        ({"gpus": {"an h200": {"shards_per_gpu": 1}}}, "no type as Slurm spells them"),
    ],
)
def test_a_wrong_table_is_reported(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(shards_per_gpu=39, **changes)
    assert says in str(caught.value)


def test_defaults_of_a_type_are_inherited() -> None:
    tree = {
        "partition_defaults": {"gpus": {"h200": {"shards_per_gpu": 138, "gpu": "h200"}}},
        "partition": {"gpu": {"collocate": True, "gpus": {"h200": {"shards_per_gpu": 130}}}},
    }
    made = parse_config(tree, origin="rad.toml")
    assert made.partitions["gpu"].gpus["h200"] == GpuType(shards_per_gpu=130, gpu="h200")
    assert made.partition_defaults.gpus["h200"].shards_per_gpu == 138


SIZES = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 200), max_size=3)


@given(
    types=SIZES,
    others=st.integers(0, 200),
    named=st.sampled_from([None, "a", "b", "c"]),
    need=st.none() | st.integers(0, 250),
    as_gpu=st.booleans(),
)
def test_a_job_with_a_gpu_of_the_requested_type_gets_all_of_it(
    types: dict[str, int], others: int, named: str | None, need: int | None, as_gpu: bool
) -> None:
    """Whichever GPU Slurm gives for the answer: it is large enough if one is, and no shard of it is left to others."""
    if not types and not others:
        return
    gpus = {name: GpuType(shards_per_gpu=shards) for name, shards in types.items()}
    partition = PartitionConfig(collocate=True, shards_per_gpu=others, gpus=gpus)
    requested_items = (GresItem(name="gpu", type=named),)
    available = AvailableGres.of(partition, requested_items, whole_as_gpu=as_gpu)
    need_bytes = None if need is None else need * GIB
    (item,) = parse_gres(available.whole(need_bytes))
    known = {**types, **({"other": others} if others else {})}
    may = {kind: known[kind] for kind in ([named] if named in types else known) if kind is not None}
    given_ = {kind: size for kind, size in may.items() if item.type in (None, kind)}
    large = [size for size in may.values() if size >= (need or 0)]
    assert given_
    if item.name == "gpu":
        assert not large or min(given_.values()) >= (need or 0)
    elif item.type is not None or len(set(may.values())) == 1:
        assert set(given_.values()) == {item.count}
    assert item.name == ("gpu" if as_gpu else "shard") or item.type is None
