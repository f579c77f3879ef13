"""Pretended CUDA streams and events. Nothing runs, so nothing waits, but PyTorch's allocator has a pool per stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gpumemnet.tracing.trace.recording.recorder import Recorder


class Stream:
    """A stream or an event.

    Attributes:
        pool: Number of its memory pool; 0 is the default stream's.
    """

    cuda_stream = 0
    device = torch.device("cuda:0")
    device_index = 0
    device_type = 1  # CUDA, as c10/core/DeviceType.h numbers them
    _made = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        Stream._made += 1
        self.pool = Stream._made

    @property
    def stream_id(self) -> int:
        """Number of the stream, as passed to PyTorch's operators."""
        return self.pool

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: 0.0 if name == "elapsed_time" else name == "query"

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        return None


for _base in ("_StreamBase", "_EventBase"):  # of some releases; torch.compile's imports insist on them
    if hasattr(getattr(torch, "_streambase", None), _base):
        getattr(torch._streambase, _base).register(Stream)  # type: ignore[attr-defined]


class Streams:
    """The current stream.

    Attributes:
        current: The stream.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.current = self._default = Stream()
        self._default.pool = 0

    def set(self, stream: Any) -> None:
        """Make a stream the current one.

        Args:
            stream: A `Stream`; any other object leaves the current stream unchanged.
        """
        if isinstance(stream, Stream):
            self.current, self._recorder.pool = stream, stream.pool

    @contextmanager
    def within(self, stream: Any) -> Iterator[None]:
        """Make a stream the current one within a context.

        Args:
            stream: As for `set`.
        """
        before = self.current
        self.set(stream)
        try:
            yield
        finally:
            self.set(before)

    def of_cuda(self) -> dict[str, Any]:
        """Return the replacements for functions of `torch.cuda`, by name."""
        return {
            "current_stream": lambda *_, **__: self.current,
            "default_stream": lambda *_, **__: self._default,
            "set_stream": self.set,
            "stream": self.within,
            "Stream": Stream,
            "Event": Stream,
        }

    def of_accelerator(self) -> dict[str, Any]:
        """Return the replacements for functions of `torch.accelerator`, by name."""
        return {"current_stream": lambda *_, **__: self.current, "set_stream": self.set}
