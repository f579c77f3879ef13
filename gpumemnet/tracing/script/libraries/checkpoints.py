"""Files of `torch.save`: those read are on the device that the script names; those written are skipped.

Checkpoints that a script saves before the trace is complete have no values to write.

Data sets are written: they often save preprocessed files first and load them again at once, here and in the job.
Existing files are protected from all of it (`shields.py`).
"""

from __future__ import annotations

import io
import os
from contextlib import ExitStack
from typing import Any
from weakref import WeakSet

import torch

from gpumemnet.errors import TraceError
from gpumemnet.tracing.script.loaders import tensors_in
from gpumemnet.tracing.trace.cuda.device import replaced
from gpumemnet.tracing.trace.cuda.tensors import CUDA, local, on_cuda
from gpumemnet.units import GIB

LARGE_BYTES = GIB
"""Size from which a file is mapped rather than read."""
_ZIP = b"PK\x03\x04"
TOO_SOON = "it reads a checkpoint again that it saved before its second optimizer step: let it save later"


class Saves:
    """Skipped checkpoints.

    Attributes:
        missing: Whether one was skipped.
    """

    def __init__(self) -> None:
        self.missing = False
        self._memory: WeakSet[io.BytesIO] = WeakSet()

    def pretended(self, stack: ExitStack) -> None:
        """Load to the device that the script names, and nothing from memory where nothing was saved."""
        load = torch.load

        def loaded(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
            if isinstance(f, io.BytesIO) and f in self._memory:
                raise TraceError(TOO_SOON)
            return _loaded(load, f, map_location, args, kwargs)

        stack.enter_context(replaced(torch, "load", loaded))

    def into(self, where: Any) -> None:
        """Record where a script saves.

        Args:
            where: A path, a file or memory.
        """
        self.missing = True
        if isinstance(where, io.BytesIO):
            self._memory.add(where)


class _Locations:
    """A `map_location` that leaves a file's storages on the CPU.

    Args:
        wanted: The script's `map_location`.
    """

    def __init__(self, wanted: Any) -> None:
        self._wanted = wanted
        self._elsewhere: dict[int, Any] = {}

    def __call__(self, storage: Any, location: str) -> Any:
        """Return a storage as it was read, on the CPU."""
        if not self._of(storage, location).startswith("cpu"):
            self._elsewhere[id(storage)] = storage
        return storage

    def rebuilding(self, rebuild: Any) -> Any:
        """Return a function that makes a tensor of a storage, on the GPU if the script wants it there.

        Args:
            rebuild: PyTorch's.
        """

        def rebuilt(storage: Any, *args: Any) -> Any:
            tensor = rebuild(storage, *args)
            inner = getattr(storage, "_untyped_storage", storage)
            return tensor.to(CUDA) if id(inner) in self._elsewhere else tensor

        return rebuilt

    def _of(self, storage: Any, location: str) -> str:
        if _named(self._wanted):
            return str(self._wanted)
        if not callable(self._wanted):
            return str((self._wanted or {}).get(location, location))
        try:
            found = self._wanted(storage, location)
        except (AssertionError, RuntimeError):  # no GPU is there to move it to
            return "cuda"
        return location if found is None else str(found.device)


def _loaded(load: Any, f: Any, wanted: Any, args: Any, kwargs: Any) -> Any:
    """Load with values what stays on the CPU, and without them what goes to the GPU.

    Args:
        load: PyTorch's function.
        f: Its file.
        wanted: Its `map_location`.
        args: Its other positional arguments.
        kwargs: Its other arguments by name.
    """
    if str(wanted) == "meta":
        return load(f, wanted, *args, **kwargs)
    if _named(wanted) and not str(wanted).startswith("cpu"):
        return _to_gpu(load, f, args, kwargs)
    locations = _Locations(wanted)
    with ExitStack() as stack:
        for name in ("detect_fake_mode", "active_fake_mode"):
            if hasattr(torch._guards, name):
                stack.enter_context(replaced(torch._guards, name, lambda *_: None))
        rebuild = locations.rebuilding(torch._utils._rebuild_tensor)
        stack.enter_context(replaced(torch._utils, "_rebuild_tensor", rebuild))
        return load(f, locations, *args, **{**kwargs, **_mapped(f)})


def _to_gpu(load: Any, f: Any, args: Any, kwargs: Any) -> Any:
    """Load without values; PyTorch makes such tensors on "meta", which no mode shall take for the script's word."""
    with torch._C.DisableTorchFunction():
        return load(f, CUDA, *args, **kwargs)


def _named(wanted: Any) -> bool:
    return isinstance(wanted, (str, torch.device))


def _mapped(f: Any) -> dict[str, bool]:
    """Return the argument to map a large file, so that what is not used of it takes no memory."""
    if not isinstance(f, (str, os.PathLike)) or not os.path.isfile(f) or os.path.getsize(f) < LARGE_BYTES:
        return {}
    with open(f, "rb") as file:
        return {"mmap": True} if file.read(len(_ZIP)) == _ZIP else {}


def of_data(saved: Any, where: Any) -> bool:
    """Return whether this is a data set's cache: on the CPU, for a file that is still empty.

    Args:
        saved: Object saved before the first step.
        where: A path, an open file, or memory.
    """
    fresh = isinstance(where, io.BytesIO) or (isinstance(where, (str, os.PathLike)) and not _holds(where))
    return (fresh or _is_file(where)) and not any(on_cuda(local(each)) for each in tensors_in(saved))


def _is_file(where: Any) -> bool:
    try:
        return isinstance(where.fileno(), int)
    except (AttributeError, OSError, ValueError):
        return False


def _holds(path: Any) -> bool:
    """Return whether a file exists and is not empty."""
    try:
        return not isinstance(path, int) and os.path.isfile(path) and os.path.getsize(path) > 0
    except (OSError, TypeError, ValueError):
        return False
