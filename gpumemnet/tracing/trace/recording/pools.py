"""Memory pools of CUDA streams, each of which keeps what it once took.

PyTorch gives out 32 streams of each priority in turn, so a loader that makes a stream whenever it is iterated takes its
memory up to 32 times, once in each epoch (c10/cuda/CUDAStream.cpp).
"""

from __future__ import annotations

from gpumemnet.gpu_memory.allocator.events import replay
from gpumemnet.tracing.trace.recording.recorder import Recorder

COUNT = 32
"""Streams of one priority (kStreamsPerPool)."""


def further_bytes(recorder: Recorder) -> int:
    """Return what a script's further streams may hold where it makes them again and again, each as much as the most."""
    of = recorder.pool_of
    held = [
        replay(each for each in recorder.events if of.get(each[0]) == pool).reserved_bytes
        for pool in recorder.pools_made_anew
    ]
    return max(held, default=0) * max(COUNT - len(held), 0)
