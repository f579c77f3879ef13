"""Skip repeated evaluation: without gradients, inputs of the same shapes take the same memory each time.

Many scripts evaluate before the first step or between steps, over hundreds of batches. Between two backward passes, a
third call of a module is not run: its recorded events are repeated, and new tensors like the earlier results returned.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from gpumemnet.records import frozen
from gpumemnet.tracing.trace.cuda.tensors import on_cuda
from gpumemnet.tracing.trace.recording.recorder import Recorder

WHOLE = 2
"""Full runs for inputs of the same shapes; in the first, a module may build tables that it keeps."""
_PLAIN = (type(None), bool, int, float, str, torch.dtype, torch.device)


@frozen
class _Done:
    """Recorded call of a module.

    Attributes:
        start: Number of recorder events before it.
        end: Number of recorder events after it.
        given: For each leaf of its result (dtype, shape, strides, offset, bytes of the storage, its key), or (value,).
        spec: Structure of the result from its leaves.
    """

    start: int
    end: int
    given: tuple[Any, ...]
    spec: Any


class Evaluations:
    """Replaces repeated calls of modules.

    Args:
        recorder: Records their allocations.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._within = recorder, False
        self._call = nn.Module.__call__
        self._done: WeakKeyDictionary[nn.Module, dict[Any, list[_Done | None]]] = WeakKeyDictionary()

    def forget(self) -> None:
        """Forget all calls: a step or a backward pass changed the state, so everything is run again."""
        self._done.clear()

    def call(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """Call a module, or repeat its recorded call."""
        if self._within or torch.is_grad_enabled():
            return self._call(module, *args, **kwargs)
        self._within = True
        try:
            return self._once(module, args, kwargs)
        finally:
            self._within = False

    def _once(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        leaves, spec = tree_flatten((args, kwargs))
        leaf_keys = [_leaf_key(leaf) for leaf in leaves]
        if None in leaf_keys or not any(isinstance(leaf, FakeTensor) for leaf in leaves):
            return self._call(module, *args, **kwargs)
        state = module.training, torch.is_autocast_enabled(), self._recorder.pool
        done = self._done.setdefault(module, {}).setdefault((str(spec), tuple(leaf_keys), state), [])
        if len(done) >= WHOLE and done[-1] is not None:
            return self._again(done[-1])
        start = len(self._recorder.events)
        result = self._call(module, *args, **kwargs)
        leaves, spec = tree_flatten(result)
        made = {key for key, n_bytes in self._recorder.events[start:] if n_bytes is not None}
        given = tuple(self._given(leaf, made) for leaf in leaves)
        end = len(self._recorder.events)
        whole = None not in given
        done.append(_Done(start=start, end=end, given=given, spec=spec) if whole else None)
        return result

    def _given(self, leaf: Any, made: set[int]) -> Any:
        """Return how to recreate a leaf of a result; None unless it is a separate tensor or a plain value."""
        if not isinstance(leaf, FakeTensor):
            return (leaf,) if isinstance(leaf, _PLAIN) else None
        key = self._recorder.key_of(leaf) if on_cuda(leaf) else None
        if key not in made:
            return None
        size = leaf.untyped_storage().nbytes()
        return leaf.dtype, tuple(leaf.shape), leaf.stride(), leaf.storage_offset(), size, key

    def _again(self, done: _Done) -> Any:
        keys = {one[-1] for one in done.given if len(one) > 1}
        new = self._recorder.again(done.start, done.end, keys)
        storages: dict[int, torch.Tensor] = {}
        leaves = []
        for one in done.given:
            if len(one) == 1:
                leaves += one
                continue
            dtype, shape, strides, offset, size, key = one
            with self._recorder.aside():
                if key not in storages:
                    storages[key] = torch.empty(size, dtype=torch.uint8, device="cuda")
                    self._recorder.adopt(storages[key], new[key])
                leaves.append(storages[key].view(dtype).as_strided(shape, strides, offset))
        return tree_unflatten(leaves, done.spec)


def _leaf_key(leaf: Any) -> Any:
    """Return the part of an argument that memory depends on; None unless it is a shape or a plain value."""
    if isinstance(leaf, FakeTensor) and on_cuda(leaf):
        return leaf.dtype, tuple(leaf.shape), leaf.stride()
    return (type(leaf), leaf) if isinstance(leaf, _PLAIN) else None
