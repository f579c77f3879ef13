"""Scripts that copy their batches on CUDA streams of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from traced import saved  # noqa: E402

from gpumemnet.tracing.script.streams import Streams  # noqa: E402
from gpumemnet.tracing.trace.recording.pools import COUNT, further_bytes  # noqa: E402
from gpumemnet.tracing.trace.recording.recorder import Recorder  # noqa: E402
from gpumemnet.tracing.trace.recording.workspace import Workspaces  # noqa: E402
from gpumemnet.tracing.trace.uncertainty import STREAMS  # noqa: E402
from gpumemnet.units import MIB  # noqa: E402

COPIED = """
    import torch
    from torch import nn

    class Ahead:
        def __init__(self, batches):
            self.batches, self.stream = batches, {once}

        def __iter__(self):
            stream = {each}
            for batch in self.batches:
                with {within}:
                    moved = batch.to("cuda", non_blocking=True)
                torch.cuda.current_stream().wait_stream(stream)
                yield moved

    batches = Ahead([torch.rand(64, 65536) for _ in range({batches})])  # 16 MiB each
    model = nn.Sequential(nn.Linear(65536, 8)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(9):
        for batch in batches:
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
"""
NEW = "torch.cuda.Stream()"


@pytest.mark.parametrize("batches", [1, 5])
@pytest.mark.parametrize("within", ["torch.cuda.stream(stream)", "stream"])
def test_streams_made_in_each_epoch_widen_the_bound_by_all_that_pytorch_has(
    tmp_path: Path, batches: int, within: str
) -> None:
    text = COPIED.format(once="None", each=NEW, batches=batches, within=within)
    _, found = saved(tmp_path, text)
    (profile,) = found.profiles
    batch_bytes = (16 if batches == 1 else 32) * MIB  # the next batch comes while the last is still there
    seen = 1 if batches == 5 else 3
    assert profile.doubt_bytes == batch_bytes * (COUNT - seen)
    assert any(STREAMS in each for each in found.warnings)


def test_a_stream_made_once_is_no_doubt(tmp_path: Path) -> None:
    _, found = saved(
        tmp_path,
        COPIED.format(once=NEW, each="self.stream", batches=1, within="torch.cuda.stream(stream)"),
    )
    assert found.profiles[0].doubt_bytes == 0
    assert not any(STREAMS in each for each in found.warnings)


def test_the_33rd_stream_is_the_first_again_and_priorities_have_their_own() -> None:
    recorder = Recorder(Workspaces())
    make = Streams(recorder).class_of_script
    pools = [make().pool for _ in range(2 * COUNT)]
    assert pools[:COUNT] == pools[COUNT:] == list(range(1, COUNT + 1))
    assert make(priority=-1).pool == COUNT + 1
    assert not recorder.pools_made_anew and not further_bytes(recorder), "one line made them at once"


def test_within_a_stream_within_another_the_former_comes_back() -> None:
    recorder = Recorder(Workspaces())
    streams = Streams(recorder)
    outer, inner = streams.class_of_script(), streams.class_of_script()
    with outer:
        with inner:
            assert recorder.pool == inner.pool
        assert streams.current is outer and recorder.pool == outer.pool
    assert recorder.pool == 0
