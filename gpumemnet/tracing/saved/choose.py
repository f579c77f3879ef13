"""Choose the profile of a file that fits the user's training, and say what to do if none fits.

Optimizer, precision, checkpointing and sequence length change a step in ways that only a trace shows: for other values
the file is refused with the call that makes the right one. Between traced batch sizes, every number of a profile is
interpolated linearly: tensors grow in proportion, and the effect of the allocator's segments stays within the bound
(tests/unit/gpumemnet_trace/saved/test_save.py compares with traces). Beyond them there is no answer.
"""

from __future__ import annotations

import shlex
from bisect import bisect_left
from typing import Any

from gpumemnet.errors import SummaryError
from gpumemnet.profile.record import WORDS, ModelProfile
from gpumemnet.tracing.saved.record import SavedProfile
from gpumemnet.training import TrainingSetup

_COMPARED = ("optimizer", "precision", "gradient_checkpointing", "seq_len")
"""Settings that both a TrainingSetup and a profile have."""
_MOST_FIX = 300
COPIED = (
    "traced in one process: as much as its weights is added for the copy of the gradients that "
    "DistributedDataParallel sends; a trace of the command under torchrun counts it exactly"
)


def choose(saved: SavedProfile, setup: TrainingSetup, *, path: str) -> tuple[ModelProfile, tuple[str, ...]]:
    """Return the profile for a training.

    Args:
        saved: The file.
        setup: The user's settings; unstated ones (`TrainingSetup.stated`) are as in the file.
        path: File name, for messages.

    Returns:
        The profile, and the assumptions.

    Raises:
        SummaryError: It was made for another training; the text holds the call that makes the right one.
    """
    made = saved.profiles[0]
    for name in _COMPARED:
        requested, there = getattr(setup, name), getattr(made, name)
        if name in setup.stated and requested != there:
            problem = f"made with {name}={_shown(type(requested)(there))}, not {_shown(requested)}"
            raise SummaryError(path=path, problem=problem, fix=_remade(saved, path, **{name: requested}))
    wanted = saved.batch_size if setup.batch_size is None else setup.batch_size
    profile = _at(saved, wanted)
    if profile is None:
        sizes = sorted({saved.profiles[0].batch_size, saved.profiles[-1].batch_size})
        problem = f"made for batch_size={' to '.join(map(str, sizes))}, not {wanted}"
        raise SummaryError(path=path, problem=problem, fix=_remade(saved, path, batch_size=wanted))
    warnings = saved.warnings
    if wanted not in {each.batch_size for each in saved.profiles}:
        warnings = (*warnings, f"batch_size={wanted} lies between those that were traced")
    if saved.shards > 1 and setup.gpus < saved.shards:
        if "gpus" in setup.stated:
            problem = f"made for {saved.shards} ranks that share the model (FSDP), not {setup.gpus}"
            raise SummaryError(path=path, problem=problem, fix=_remade(saved, path, ranks=setup.gpus))
        warnings = (*warnings, f"its {saved.shards} ranks share the model (FSDP): start no fewer")
    if "gpus" in setup.stated and setup.gpus != profile.gpus:
        if profile.gpus == 1:
            profile, warnings = _with_copy(profile), (*warnings, COPIED)
        profile = profile._replace(gpus=setup.gpus)
    return profile, warnings


def _with_copy(profile: ModelProfile) -> ModelProfile:
    """Return the profile with a copy of all gradients, the maximum: it lacks the number of trained weights."""
    more = profile.parameter_bytes
    return profile._replace(
        gradient_bytes=profile.gradient_bytes + more,
        allocated_bytes=profile.allocated_bytes + more,
        reserved_bytes=profile.reserved_bytes + more,
    )


def _at(saved: SavedProfile, batch_size: int) -> ModelProfile | None:
    """Return the profile at a batch size, or None outside the traced range."""
    sizes = [profile.batch_size for profile in saved.profiles]
    at = bisect_left(sizes, batch_size)
    if at == len(sizes) or (at == 0 and sizes[0] != batch_size):
        return None
    high = saved.profiles[at]
    if high.batch_size == batch_size:
        return high
    low = saved.profiles[at - 1]
    share = (batch_size - low.batch_size) / (high.batch_size - low.batch_size)
    values: dict[str, Any] = {name: _between(low, high, name, share) for name in _NAMES}
    return ModelProfile(**values)


def _between(low: ModelProfile, high: ModelProfile, name: str, share: float) -> object:
    below, above = getattr(low, name), getattr(high, name)
    return below if name in WORDS else below + round((above - below) * share)


_NAMES = ModelProfile._fields


def _remade(saved: SavedProfile, path: str, **changes: object) -> str:
    """Return the instruction for a file of another training."""
    settings = ", ".join(f"{name}={_shown(value)}" for name, value in changes.items())
    name = path if len(path) <= _MOST_FIX // 2 else "FILE"
    if saved.command:
        command = shlex.join(saved.command)
        command = command if len(command) <= _MOST_FIX else f"{command[:_MOST_FIX]}..."
        return f"let the script train with {settings}, then: rad-estimate --save {shlex.quote(name)} -- {command}"
    if "batch_size" in changes:
        return f"call gpumemnet.save(model, inputs, {name!r}) with inputs of that batch size"
    call = ", ".join(
        f"{key}={str(value)!r}" if isinstance(value, str) else f"{key}={value}"
        for key, value in changes.items()
    )
    if "seq_len" in changes:
        return f"call gpumemnet.save(model, inputs, {name!r}) with inputs of that length"
    return f"call gpumemnet.save(model, inputs, {name!r}, {call})"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
