"""Ways to train, traced on fake tensors and run on the CPU with real ones: the live bytes at the peak are the same.

The loops use operators that take the same on both, and SGD one tensor at a time; what only a GPU takes (workspaces of
its libraries) is left out of the comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from gpumemnet.estimators.faketensor import StorageCounter  # noqa: E402
from gpumemnet.tracing.script.libraries.data_parallel import DistributedDataParallel, assigned  # noqa: E402
from gpumemnet.tracing.trace.cuda.device import pretended_cuda  # noqa: E402
from gpumemnet.tracing.trace.recording.recorder import Recorder  # noqa: E402
from gpumemnet.tracing.trace.recording.workspace import Workspaces  # noqa: E402

WIDTH, BATCH = 256, 1024


def blocks(device: str, *, dtype: Any = torch.float32) -> nn.Sequential:
    def one() -> nn.Module:
        wide, narrow = (
            nn.Linear(*sizes, device=device, dtype=dtype)
            for sizes in ((WIDTH, 2 * WIDTH), (2 * WIDTH, WIDTH))
        )
        return nn.Sequential(wide, nn.ReLU(), narrow, nn.ReLU())

    return nn.Sequential(*(one() for _ in range(4)))


class LowRank(nn.Module):
    """LoRA as peft has it: a frozen layer and next to it the product of two small ones that are trained."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        device = layer.weight.device
        self.down = nn.Linear(layer.in_features, rank, bias=False, device=device)
        self.up = nn.Linear(rank, layer.out_features, bias=False, device=device)

    def forward(self, x: Any) -> Any:
        return self.layer(x) + self.up(self.down(x)) * 2.0


def train(
    model: nn.Module, device: str, *, micro_steps: int = 1, forward: Any = None, dtype: Any = None
) -> None:
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1, foreach=False)
    for _ in range(2):
        for _ in range(micro_steps):
            x = torch.zeros(BATCH, WIDTH, device=device, dtype=dtype or torch.float32)
            loss = ((forward or model)(x)).sum()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def plain(device: str) -> None:
    train(blocks(device), device)


def bf16(device: str) -> None:
    train(blocks(device, dtype=torch.bfloat16), device, dtype=torch.bfloat16)


def accumulated(device: str) -> None:
    train(blocks(device), device, micro_steps=3)


def checkpointed(device: str) -> None:
    model = blocks(device)

    def forward(x: Any) -> Any:
        x = x.requires_grad_()
        for block in model:
            x = checkpoint(block, x, use_reentrant=False)
        return x

    train(model, device, forward=forward)


def low_rank(device: str) -> None:
    model = blocks(device)
    for block in model:
        block[0], block[2] = LowRank(block[0], 8), LowRank(block[2], 8)
    train(model, device)


def frozen_backbone(device: str) -> None:
    model = blocks(device)
    model[:3].requires_grad_(False)
    train(model, device)


def data_parallel(device: str) -> None:
    model = DistributedDataParallel(blocks(device))
    train(model, device)


def data_parallel_views(device: str) -> None:
    model = DistributedDataParallel(blocks(device), gradient_as_bucket_view=True)
    train(model, device)


WAYS = (plain, bf16, accumulated, checkpointed, low_rank, frozen_backbone, data_parallel, data_parallel_views)


def traced_peak_bytes(way: Callable[[str], None]) -> int:
    recorder = Recorder(Workspaces())
    with pretended_cuda(), recorder:
        way("cuda")
    purposes = recorder.phase_of
    live: dict[int, int] = {}
    peak = 0
    for key, n_bytes in recorder.events:
        if n_bytes is None:
            live.pop(key, None)
        elif purposes[key] != "workspace":
            live[key] = n_bytes
            peak = max(peak, sum(live.values()))
    return peak


def real_peak_bytes(way: Callable[[str], None]) -> int:
    with StorageCounter() as counter:
        way("cpu")
    return counter.peak_bytes


@pytest.mark.parametrize("way", WAYS)
def test_a_trace_holds_what_the_cpu_holds(way: Callable[[str], None]) -> None:
    assert traced_peak_bytes(way) == pytest.approx(real_peak_bytes(way), rel=0.01)


def test_what_each_way_changes_is_what_it_changes_by_hand() -> None:
    """Of gradients, a data-parallel copy holds one more; views of its buckets hold none more."""
    gradients = sum(p.numel() * 4 for p in blocks("cpu").parameters())
    alone = traced_peak_bytes(plain)
    assert traced_peak_bytes(data_parallel) - alone == pytest.approx(gradients, rel=0.01)
    assert traced_peak_bytes(accumulated) > alone
    assert traced_peak_bytes(checkpointed) < alone
    assert traced_peak_bytes(frozen_backbone) < alone - gradients / 2


def test_buckets_hold_every_gradient_once_and_begin_with_a_small_one() -> None:
    parameters = list(blocks("cpu").parameters())
    found = assigned(reversed(parameters), (1 << 20, 4 << 20))
    assert sorted(id(p) for bucket in found for p in bucket) == sorted(map(id, parameters))
    assert found[0][0] is parameters[-1]
    sizes = [sum(p.numel() * 4 for p in bucket) for bucket in found]
    assert 1 << 20 <= sizes[0] < 4 << 20


def test_weights_and_buffers_are_sent_in_flat_copies_that_do_not_stay() -> None:
    """As c10d's broadcast_coalesced: both once at the start, and the buffers before each step."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))
    weights, buffers = WIDTH * WIDTH + 3 * WIDTH, 2 * WIDTH
    recorder = Recorder(Workspaces())
    with pretended_cuda(), recorder:
        parallel = DistributedDataParallel(model.to("cuda"))
        parallel(torch.zeros(4, WIDTH, device="cuda"))
    keys = [key for key, n_bytes in recorder.events if n_bytes == 4 * (weights + buffers)]
    sent = [key for key, n_bytes in recorder.events if n_bytes == 4 * buffers]
    assert (len(keys), len(sent)) == (1, 1)
    assert all((key, None) in recorder.events for key in (*keys, *sent))
