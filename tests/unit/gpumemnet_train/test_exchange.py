"""How the replicas of a replay's training agree on one gradient; NCCL's own sum needs two GPUs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))

from replay.job import exchange  # noqa: E402
from replay.options import EXCHANGES  # noqa: E402

SHAPES = [(7,), (3, 5), (), (2, 2, 2), (40,)]


def replicas(count: int) -> list[list[torch.Tensor]]:
    return [
        [torch.full(shape, float(10 * replica + k)) for k, shape in enumerate(SHAPES)]
        for replica in range(count)
    ]


def test_each_way_that_can_be_requested_is_one() -> None:
    assert set(exchange.EXCHANGES) == set(EXCHANGES)


@pytest.mark.parametrize("way", ["copies", "buckets", "nccl"])
@pytest.mark.parametrize("bucket_bytes", [1, 40, 1 << 20])
def test_all_replicas_end_with_the_mean(way: str, bucket_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCCL_NVLS_ENABLE", raising=False)

    def all_reduce(flat: list[torch.Tensor]) -> None:
        assert os.environ["NCCL_NVLS_ENABLE"] == "0", (
            "a server forks trainings, which take their jobs' environment"
        )
        total = torch.stack(list(flat)).sum(0)
        for one in flat:
            one.copy_(total)

    monkeypatch.setattr(exchange, "BUCKET_BYTES", bucket_bytes)
    monkeypatch.setattr(torch.cuda.nccl, "all_reduce", all_reduce)
    gradients = replicas(3)
    exchange.EXCHANGES[way](gradients)
    for replica in gradients:
        assert [one.shape for one in replica] == [torch.Size(shape) for shape in SHAPES]
        assert [one.mean().item() for one in replica] == [10.0 + k for k in range(len(SHAPES))]


@given(st.lists(st.tuples(st.integers(1, 60), st.sampled_from([torch.float32, torch.bfloat16])), max_size=30))
def test_a_bucket_holds_one_type_and_no_more_than_it_may(sizes: list[tuple[int, torch.dtype]]) -> None:
    gradients = [torch.zeros(count, dtype=dtype) for count, dtype in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "BUCKET_BYTES", 100)
        found = list(exchange.buckets(gradients))
    assert sorted(k for which in found for k in which) == list(range(len(sizes)))
    for which in found:
        assert len({gradients[k].dtype for k in which}) == 1
        assert len(which) == 1 or sum(gradients[k].nbytes for k in which) <= 100
