"""Pretended CUDA streams and events. Nothing runs, so nothing waits, but PyTorch's allocator has a pool per stream."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gpumemnet.tracing.trace.recording.pools import COUNT
from gpumemnet.tracing.trace.recording.recorder import Recorder


class Event:
    """An event: nothing waits for it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: 0.0 if name == "elapsed_time" else name == "query"


class Stream(Event):
    """A stream.

    Attributes:
        pool: Number of its memory pool; 0 is the default stream's.
    """

    cuda_stream = 0
    device = torch.device("cuda:0")
    device_index = 0
    device_type = 1  # CUDA, as c10/core/DeviceType.h numbers them
    pool = 0

    @property
    def stream_id(self) -> int:
        """Number of the stream, as passed to PyTorch's operators."""
        return self.pool

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        return None


# torch.compile's imports in some releases insist on these.
_bases = vars(getattr(torch, "_streambase", object))
for _name, _kind in (("_StreamBase", Stream), ("_EventBase", Event)):
    if _name in _bases:
        _bases[_name].register(_kind)


class Streams:
    """The current stream, and the streams that are made.

    Attributes:
        current: The stream.
        class_of_script: The script's `torch.cuda.Stream`.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.current = self._default = Stream()
        self.class_of_script = _class_of(self)
        self._made: dict[int, int] = {}
        self._sites: dict[tuple[Any, int], int] = {}

    @property
    def trains(self) -> bool:
        """Whether the script has begun to train."""
        return any(phase == "backward" for _, phase in self._recorder.phase_starts)

    def number(self, priority: int) -> int:
        """Return the pool of a stream that the script makes now, and record whether it makes one again and again.

        Args:
            priority: 0, or negative for a higher one.
        """
        made = self._made.get(priority, 0)
        self._made[priority] = made + 1
        pool = COUNT * -priority + made % COUNT + 1
        frame = sys._getframe(2)
        phase = len(self._recorder.phase_starts)
        first = self._sites.setdefault((frame.f_code, frame.f_lineno), phase)
        if frame.f_code.co_name == "__iter__" or first != phase:
            self._recorder.pools_made_anew.add(pool)
        return pool

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
            "Stream": self.class_of_script,
            "Event": Event,
        }

    def of_accelerator(self) -> dict[str, Any]:
        """Return the replacements for functions of `torch.accelerator`, by name."""
        return {"current_stream": lambda *_, **__: self.current, "set_stream": self.set}


def _class_of(streams: Streams) -> type[Stream]:
    """Return the class of the script's streams.

    Args:
        streams: Numbers them, and knows the current one.
    """

    class Made(Stream):
        def __init__(self, device: Any = None, priority: Any = 0, *_: Any, **__: Any) -> None:
            self.pool = streams.number(min(priority or 0, 0))
            self._before: list[Stream] = []

        def __enter__(self) -> Stream:
            self._before.append(streams.current)
            streams.set(self)
            return self

        def __exit__(self, *_: Any) -> None:
            streams.set(self._before.pop())

    return Made
