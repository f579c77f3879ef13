"""Record the allocations and frees of a training step on fake tensors, in PyTorch's order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpumemnet.gpu_memory.allocator.events import AllocatorCall
from gpumemnet.tracing.trace.cuda.older import POLLED, tree_leaves, watched
from gpumemnet.tracing.trace.cuda.tensors import local, on_cuda, unfolds
from gpumemnet.tracing.trace.recording.assume import Assumptions
from gpumemnet.tracing.trace.recording.request import Request
from gpumemnet.tracing.trace.recording.workspace import CUBLAS, Workspaces

aten = torch.ops.aten
ADDED_IN_PLACE = frozenset(
    (aten.add.Tensor, aten.index_put.default, aten.scatter_add.default, aten.index_add.default)
)
"""Autograd adds into a gradient that it owns, but not if it is a view, as a transposed weight's is, whose base owns it
too, or a tensor subclass, as fake tensors are."""


class _Live:
    """A storage in use; its key changes when it takes over another storage's block."""

    __slots__ = ("key", "ref")

    def __init__(self, key: int, ref: Any) -> None:
        self.key, self.ref = key, ref


class Recorder(TorchDispatchMode):
    """Records the storages that operators make and free.

    Attributes:
        events: (key, bytes) for an allocation, (key, None) for a free.
        phase: The current phase: "parameters", "inputs", "forward", "backward", "optimizer".
        phase_starts: (number of events then, phase) at each change.
        phase_of: The phase in which each key was allocated.
        workspaces: Purpose of each workspace key.
        pool: Number of the stream whose pool supplies memory; 0 is the default stream.
        pool_of: The pool of each key on another stream.
        pools_made_anew: Those of streams that the script makes again and again.
        assumptions: Answers to what fake tensors cannot know, and the warnings about them.
    """

    def __init__(self, workspaces: Workspaces) -> None:
        super().__init__()
        self.events: list[AllocatorCall] = []
        self.phase_starts: list[tuple[int, str]] = []
        self.phase = "parameters"
        self.phase_of: dict[int, str] = {}
        self.assumptions = Assumptions()
        self.workspaces: dict[int, Any] = {}
        self.pool = 0
        self.pool_of: dict[int, int] = {}
        self.pools_made_anew: set[int] = set()
        self._workspaces = workspaces
        self._finished = self._aside = False
        self._next_key = 0
        self._marked: dict[int, str] = {}
        self._live: dict[int, _Live] = {}
        # The sum just made, the key of its first operand, and the number of events then: see _freed.
        self._pending_sum: tuple[_Live, int, int] | None = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if unfolds(types):
            return NotImplemented
        if self._aside:
            return func(*args, **kwargs)
        if POLLED:
            self._record_ended()
        replaced = self.assumptions.answer(func, args, kwargs)
        out = func(*args, **kwargs) if replaced is None else replaced[0]
        requests = self._workspaces.of(func, args, kwargs, out)
        copies = [self._take(request) for request in requests if request.throughout]
        requests = [request for request in requests if not request.throughout]
        new = self._note_outputs(func, args, tree_leaves(out), requests)
        for n_bytes in self._workspaces.kept(func, args, self.phase):
            key = self._key("workspace")
            self.workspaces[key] = CUBLAS
            self.events.append((key, n_bytes))
        for request in requests:
            if request.after_output is None:
                self._borrow(request)
        self.events.extend((key, None) for key in copies)
        if len(new) == 1:
            self._remember_sum(func, args, new[0])
        return out

    def _note_outputs(self, func: Any, args: Any, leaves: list[Any], requests: list[Request]) -> list[_Live]:
        """Record an operation's outputs and the workspaces between them, in order; return the outputs that are new."""
        new = []
        for index in self._workspaces.order(func, args, len(leaves)):
            tensor = leaves[index]
            live = self._note(tensor) if on_cuda(tensor) else None
            if live is not None:
                new.append(live)
            for request in requests:
                if request.after_output == index:
                    self._borrow(request)
        return new

    def enter(self, phase: str) -> None:
        """Begin a phase."""
        if POLLED:
            self._record_ended()
        self.phase = phase
        self.assumptions.enter(phase)
        self.phase_starts.append((len(self.events), phase))

    def finish(self) -> None:
        """Stop recording: later frees come from the end of the script."""
        self._finished = True

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Skip recording inside: the computation uses no GPU memory."""
        before, self._aside = self._aside, True
        try:
            yield
        finally:
            self._aside = before

    def resized(self, storage: torch.UntypedStorage) -> None:
        """Record a storage's new size: FSDP frees and recreates gathered parameters this way.

        Args:
            storage: Any storage; one that is not on the GPU is ignored.
        """
        live = self._live.get(storage._cdata)
        if live is None or self._finished:
            return
        self._pending_sum = None
        self.events.append((live.key, None))
        if storage.nbytes():
            live.key = self._key("parameters")
            self.events.append((live.key, storage.nbytes()))

    def again(self, start: int, end: int, kept: set[int]) -> dict[int, int]:
        """Repeat the recorded events between two positions; return the new key of each old key.

        Args:
            start: Number of events before it.
            end: Number of events after it.
            kept: Keys to repeat although they were not freed; other unfreed keys were made to stay.
        """
        span = self.events[start:end]
        freed = {key for key, n_bytes in span if n_bytes is None}
        new: dict[int, int] = {}
        for key, n_bytes in span:
            if n_bytes is not None and (key in freed or key in kept):
                new[key] = self._key()
                self.phase_of[new[key]] = self.phase_of[key]
                if key in self.workspaces:
                    self.workspaces[new[key]] = self.workspaces[key]
            if key in new and (n_bytes is not None or key not in kept):
                self.events.append((new[key], n_bytes))
        return new

    def adopt(self, tensor: torch.Tensor, key: int) -> None:
        """Let a tensor that was made in `aside` represent a key.

        Args:
            tensor: Its storage frees the key.
            key: Key of a recorded allocation.
        """
        address = tensor.untyped_storage()._cdata
        self._live[address] = _Live(key, watched(tensor.untyped_storage(), lambda _: self._gone(address)))

    def mark(self, tensors: Iterable[torch.Tensor | None], purpose: str) -> None:
        """Record the purpose of tensors where the phase of their allocation does not show it.

        Args:
            tensors: The tensors; None and tensors elsewhere are ignored.
            purpose: The purpose.
        """
        for tensor in (None if each is None else local(each) for each in tensors):
            key = self.key_of(tensor) if tensor is not None and on_cuda(tensor) else None
            if key is not None:
                self._marked[key] = purpose

    def purposes(self) -> dict[int, str]:
        """Return the purpose of each key: parameters, gradients, optimizer, activations or workspace."""
        by_phase = {"parameters": "parameters", "inputs": "activations", "forward": "activations"}
        return {key: by_phase.get(phase, "workspace") for key, phase in self.phase_of.items()} | self._marked

    def key_of(self, tensor: torch.Tensor) -> int | None:
        """Return the key under which the tensor's storage was recorded, or None."""
        if tensor.layout is torch.sparse_coo:
            return None
        found = self._live.get(tensor.untyped_storage()._cdata)
        return None if found is None else found.key

    def _key(self, phase: str | None = None) -> int:
        self._next_key += 1
        self.phase_of[self._next_key] = self.phase if phase is None else phase
        if self.pool:
            self.pool_of[self._next_key] = self.pool
        return self._next_key

    def _note(self, tensor: torch.Tensor) -> _Live | None:
        if tensor.layout is torch.sparse_coo:  # its storages are those of its indices and values
            indices = self._note(tensor._indices())
            return self._note(tensor._values()) or indices
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address in self._live:
            return None

        def gone(_: Any) -> None:
            self._gone(address)

        live = _Live(self._key(), watched(storage, gone))
        self._live[address] = live
        self.events.append((live.key, storage.nbytes()))
        return live

    def _gone(self, address: int) -> None:
        key = self._live.pop(address).key
        if not self._finished:
            self._freed(key)

    def _record_ended(self) -> None:
        """Record storages that ended since the last call, where nothing notifies; a sum's first operand comes first."""
        ended = [address for address, live in self._live.items() if live.ref.expired()]
        first = None if self._pending_sum is None else self._pending_sum[1]
        for address in sorted(ended, key=lambda each: self._live[each].key != first):
            self._gone(address)

    def _take(self, request: Request) -> int:
        key = self._key("workspace")
        self.workspaces[key] = request.what
        self.events.append((key, request.n_bytes))
        return key

    def _borrow(self, request: Request) -> None:
        self.events.append((self._take(request), None))

    def _remember_sum(self, func: Any, args: Any, new: _Live) -> None:
        self._pending_sum = None
        if (
            self.phase == "backward"
            and func in ADDED_IN_PLACE
            and on_cuda(args[0])
            and not args[0]._is_view()
        ):
            old = self.key_of(args[0])
            if old is not None:
                self._pending_sum = (new, old, len(self.events))

    def _freed(self, key: int) -> None:
        pending, self._pending_sum = self._pending_sum, None
        if pending is not None and pending[1:] == (key, len(self.events)):
            # The first operand died right after the sum: PyTorch would have added in place.
            self.events.pop()
            pending[0].key = key
        else:
            self.events.append((key, None))
