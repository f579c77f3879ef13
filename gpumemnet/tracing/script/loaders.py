"""Read the script's data loaders in this process, and bring the largest of unequal batches early.

Texts padded to the longest of their batch, images of many sizes and graphs make unequal batches. A training's peak is
that of its largest batch, which two steps would rarely meet. Also, blocks freed by smaller batches do not fit larger
ones, so PyTorch reserves more and more. So the smallest batch comes first, then an ordinary one, then the largest.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from gpumemnet.tracing.script.workers import WorkerIterator
from gpumemnet.tracing.trace.uncertainty import UNREAD_TIMES, growth

ALWAYS = 4
"""Batches that are always examined; if they are alike, the rest is assumed to be alike."""
MOST = 200
"""Batches that are examined if they differ, and further ones while reading is fast."""
CHEAP_S = 4.0
"""Seconds within which all of a loader's batches are examined: lengths of a data set that is read fast."""
LOOK_S = 20.0
"""Seconds that the examination may take."""
REPORTED = 1.02
"""Smallest ratio of the largest to the middle batch that is reported."""
DIFFER = "its batches differ in size"
ENDED = "the script ended before that step: let it make three"
DEPTH = 6
"""Maximum nesting depth at which a batch's tensors are found."""
OBJECTS = 10_000
"""Maximum number of lists and objects searched for them."""

_HERE = {
    "num_workers": 0,
    "pin_memory": False,
    "persistent_workers": False,
    "prefetch_factor": None,
    "timeout": 0,
}
_NO_BATCH = (str, bytes, int, float, type(None), type, nn.Module)
_ARGUMENTS = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers")


def pretended(settings: Any) -> None:
    """Make every new loader read in this process, and its largest batch come early.

    Args:
        settings: Receives how much batches differ, and whether the largest came.
    """
    make, begin = DataLoader.__init__, DataLoader.__iter__
    largest: WeakKeyDictionary[DataLoader[Any], Looked] = WeakKeyDictionary()
    workers: WeakSet[DataLoader[Any]] = WeakSet()

    def in_this_process(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs = dict(zip(_ARGUMENTS, args[:6])) | kwargs
        wanted = bool(kwargs.get("num_workers"))
        kwargs = {key: value for key, value in kwargs.items() if key not in _HERE}
        kwargs.pop("multiprocessing_context", None)
        kwargs.pop("pin_memory_device", None)
        make(self, **kwargs)
        if wanted:
            workers.add(self)

    def largest_soon(self: Any) -> Any:
        batches = begin(self)
        if self in workers:
            batches = WorkerIterator(self, batches)  # type: ignore[assignment]
        if self not in largest:
            seen = Looked(batches, count_of(self))
            largest[self] = seen
            settings.differ = settings.differ or bool(seen.largest)
            settings.ratio = max(settings.ratio, seen.ratio)
            settings.growth = max(settings.growth, seen.growth)
            return _Batches(batches, seen.in_place, seen, settings)
        return _Batches(batches, largest[self].largest, largest[self], settings)

    DataLoader.__init__ = in_this_process  # type: ignore[method-assign]
    DataLoader.__iter__ = largest_soon  # type: ignore[method-assign]


class Looked:
    """The examined first batches of a loader.

    Attributes:
        in_place: Batches to return in place of the examined ones.
        largest: The largest of them, if they differ.
        ratio: Size of the largest divided by that of the smallest.
        growth: Share by which one that was not read may exceed the largest.
        sentence: Warning once the largest was trained on; "" if batches are alike.
        missed: Warning if the largest was never trained on.
    """

    def __init__(self, batches: Iterator[Any], count: int | None = None) -> None:
        """Read and examine the batches.

        Args:
            batches: The loader's iterator.
            count: Number of its batches; None if unknown.
        """
        began = time.monotonic()
        first, sizes = [], []
        self.largest: list[Any] = []
        self.ratio, self.growth = 1.0, 0.0
        self.sentence = self.missed = ""
        for batch in _for(LOOK_S, islice(batches, ALWAYS), began):
            first.append(batch)
            sizes.append(size_of(batch))
        self.in_place: Sequence[Any] = first
        if len({shapes for shapes, _ in sizes}) < 2:
            return
        order = sorted(range(len(first)), key=lambda n: sizes[n][1])
        middle = order[len(order) // 2]
        smallest = largest = (sizes[middle][1], first[middle])
        samples = _samples(sizes[middle][0])
        rest = Reading(batches, began)
        for n, batch in enumerate(chain(first, rest)):
            if n == len(sizes):
                sizes.append(size_of(batch))
            shapes, size = sizes[n]
            if size < smallest[0] and _samples(shapes) == samples:  # the last batch of an epoch has fewer
                smallest = (size, batch)
            if size > largest[0]:
                largest = (size, batch)
        most, best = largest
        self.largest = [best]
        self.in_place = [smallest[1], first[middle], *[best] * len(sizes)][: len(sizes)]
        counts = sorted(size for _, size in sizes)
        usual = max(counts[len(counts) // 2], 1)
        self.ratio = most / max(counts[0], 1)
        if most > REPORTED * usual:
            unread = 0.0 if rest.ended else UNREAD_TIMES if count is None else count / len(sizes) - 1
            self.growth = growth(counts, unread)
            of = f"the largest of {'all' if unread <= 0 else 'the first'} {len(sizes)}"
            times = f"{most / usual:.2f} times the middle one"
            self.sentence = f"{DIFFER}: {of} is counted, {times}{assumed(self.growth)}"
            self.missed = f"{DIFFER}: {of}, {times}, is not counted, as {ENDED}"


class Reading:
    """A loader's further batches, within the limits; `ended` is true once there are no more."""

    def __init__(self, batches: Iterator[Any], began: float) -> None:
        self._batches, self._began, self.ended = batches, began, False

    def __iter__(self) -> Iterator[Any]:
        for count, batch in enumerate(self._batches, ALWAYS + 1):
            yield batch
            took_s = time.monotonic() - self._began
            if took_s > LOOK_S or (count >= MOST and took_s > CHEAP_S):
                return
        self.ended = True


def assumed(share: float) -> str:
    """Return the end of a sentence on sizes: what the bound assumes of those that were not seen.

    Args:
        share: As from `growth`.
    """
    return f"; the bound assumes at most {1 + share:.2f} times that in the others" if share else ""


def count_of(loader: Any) -> int | None:
    """Return the number of a loader's batches; None if it does not tell."""
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None


def _samples(shapes: Sequence[Sequence[int]]) -> int:
    """Return the likely number of samples in a batch; for graphs, their nodes, which differ between batches."""
    return shapes[0][0] if shapes and shapes[0] else 0


def _for(seconds: float, batches: Iterator[Any], began: float) -> Iterator[Any]:
    for batch in batches:
        yield batch
        if time.monotonic() - began > seconds:
            return


class _Batches:
    """A loader's iterator that returns other batches first, and reports when the largest comes."""

    def __init__(self, rest: Any, first: Sequence[Any], looked: Looked, settings: Any) -> None:
        self._rest, self._first, self._looked, self._settings = rest, iter(first), looked, settings

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        for batch in self._first:
            self._note(batch)
            return copy.copy(batch)  # copied because it comes again, and a script may remove things from it
        return next(self._rest)

    def _note(self, batch: Any) -> None:
        looked, settings = self._looked, self._settings
        if not looked.sentence:
            return
        if any(batch is each for each in looked.largest):
            settings.came[looked.missed] = looked.sentence
        elif looked.sentence not in settings.warn and torch.is_grad_enabled():
            settings.missed[looked.missed] = None

    def __len__(self) -> int:
        return len(self._rest)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rest, name)


def size_of(batch: Any) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Return the shapes of all tensors in a batch, and their total number of elements.

    Args:
        batch: Any batch of a loader: tensors, lists and mappings of them, objects that hold them (graphs).
    """
    shapes = tuple(tuple(tensor.shape) for tensor in tensors_in(batch))
    count = 0
    for shape in shapes:
        elements = 1
        for length in shape:
            elements *= length
        count += elements
    return shapes, count


def tensors_in(batch: Any) -> Iterator[Tensor]:
    """Yield the tensors of a batch, in their order.

    Args:
        batch: As for `size_of`.
    """
    return _tensors(batch, DEPTH, set())


def _tensors(value: Any, depth: int, met: set[int]) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
        return
    if depth == 0 or id(value) in met or len(met) > OBJECTS or isinstance(value, _NO_BATCH):
        return
    met.add(id(value))
    inside: Any = ()
    if isinstance(value, Mapping):
        inside = value.values()
    elif isinstance(value, (list, tuple)):
        inside = value
    elif hasattr(value, "__dict__"):
        inside = vars(value).values()
    for one in list(inside):
        yield from _tensors(one, depth - 1, met)
