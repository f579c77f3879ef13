"""Make the file from a live model: trace a training at the user's batch size and its neighbours, without a GPU.

The user's model stays unchanged: the trace uses a copy with unwritten weights, which take no memory.
"""

from __future__ import annotations

import copy
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import torch
from torch import Tensor, nn

from gpumemnet.errors import TraceError
from gpumemnet.names import Optimizer
from gpumemnet.profile.record import ModelProfile
from gpumemnet.tracing.saved.of_trace import profile_of
from gpumemnet.tracing.saved.record import SavedProfile, release
from gpumemnet.tracing.trace import memory_of, session
from gpumemnet.tracing.trace.inputs import InputSpec
from gpumemnet.tracing.trace.loss import TARGET
from gpumemnet.tracing.trace.target import Target
from gpumemnet.training import TrainingSetup

Inputs = Union[Tensor, Sequence[Any], Mapping[str, Any]]
"""A tensor, a shape, or several of either: positional in a list or tuple, by name in a mapping."""
OptimizerLike = Union[str, torch.optim.Optimizer, Callable[..., torch.optim.Optimizer]]


def saved_profile(
    model: nn.Module,
    inputs: Inputs,
    *,
    loss: Callable[..., Any] | None = None,
    target: Any = None,
    optimizer: OptimizerLike = "adam",
    precision: str = "fp32",
    gradient_checkpointing: bool = False,
) -> SavedProfile:
    """Trace a training of a model; arguments as for `gpumemnet.save`.

    Raises:
        TraceError: The model cannot be copied, or does not run on these inputs.
        SetupError: Optimizer or precision is unknown.
    """
    specs = input_specs(inputs)
    if target is not None:
        specs = (*specs, _spec(TARGET, target))
    batch_size = specs[0].shape[0]
    name, factory = _optimizer(optimizer)
    tokens = next((s.shape[1] for s in specs if len(s.shape) == 2 and s.dtype.startswith("int")), 0)
    setup = TrainingSetup(
        batch_size=batch_size,
        optimizer=name,
        precision=precision,  # type: ignore[arg-type]
        gradient_checkpointing=gradient_checkpointing,
    )
    profiles: dict[int, ModelProfile] = {}
    warnings: tuple[str, ...] = ()
    # The user's batch size comes first, so that errors name the shapes that the user gave.
    for size in sorted(batch_sizes(batch_size), key=lambda each: each != batch_size):
        trace = session.record(
            lambda: Target(model=unfilled_copy(model), loss=loss, optimizer=factory),
            [_resized(spec, batch_size, size) for spec in specs],
            setup,
        )
        profiles[size] = profile_of(memory_of(trace), setup, batch_size=size, seq_len=tokens)
        warnings = trace.warnings
    return SavedProfile(
        profiles=tuple(profiles[size] for size in sorted(profiles)),
        batch_size=batch_size,
        model=type(model).__name__,
        inputs=tuple(map(written, specs)),
        versions=versions(),
        warnings=warnings,
    )


def batch_sizes(batch_size: int) -> tuple[int, ...]:
    """Return the batch sizes to trace: the user's, half of it, and twice it."""
    return tuple(sorted({max(batch_size // 2, 1), batch_size, 2 * batch_size}))


def unfilled_copy(model: nn.Module) -> nn.Module:
    """Return a copy on the CPU whose parameters and buffers are never written, so that they take no memory.

    Raises:
        TraceError: Something in the model cannot be copied.
    """
    memo: dict[int, Any] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
        parameter = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = nn.Parameter(empty, requires_grad=tensor.requires_grad) if parameter else empty
    try:
        return copy.deepcopy(model, memo)
    except Exception as exc:
        raise TraceError(
            f"the model cannot be copied ({type(exc).__name__}); try rad-estimate --module FILE.py:FUNCTION"
        ) from exc


def input_specs(inputs: Inputs) -> tuple[InputSpec, ...]:
    """Return the shapes of a model's inputs.

    Raises:
        TraceError: There is none, or it is neither a tensor nor a shape.
    """
    if isinstance(inputs, Mapping):
        found = tuple(_spec(name, value) for name, value in inputs.items() if value is not None)
    elif isinstance(inputs, Tensor) or (inputs and all(isinstance(size, int) for size in inputs)):
        found = (_spec(None, inputs),)
    else:
        found = tuple(_spec(None, value) for value in inputs)
    if not found or not all(spec.shape for spec in found[:1]):
        raise TraceError(
            "no inputs are given; pass a tensor or a shape, as in gpumemnet.save(model, (64, 3, 224, 224))"
        )
    return found


def _spec(name: str | None, value: Any) -> InputSpec:
    if isinstance(value, Tensor):
        return InputSpec(name=name, shape=tuple(value.shape), dtype=str(value.dtype).removeprefix("torch."))
    if isinstance(value, Sequence) and value and all(isinstance(size, int) and size > 0 for size in value):
        return InputSpec(name=name, shape=tuple(value), dtype="float32")
    raise TraceError(f"input {name or ''} is a {type(value).__name__}; pass a tensor or a shape")


def _resized(spec: InputSpec, batch_size: int, size: int) -> InputSpec:
    if not spec.shape or spec.shape[0] != batch_size:
        return spec
    return InputSpec(name=spec.name, shape=(size, *spec.shape[1:]), dtype=spec.dtype)


def written(spec: InputSpec) -> str:
    """Return an input in the form of `rad-estimate --input`."""
    name = "" if spec.name is None else f"{spec.name}="
    return f"{name}{'x'.join(map(str, spec.shape))}:{spec.dtype}"


def _optimizer(given: Any) -> tuple[Optimizer, Callable[..., Any] | None]:
    """Return the optimizer's name, and a function that makes it; None for the default of that name."""
    if isinstance(given, str):
        return TrainingSetup(optimizer=given).optimizer, None  # type: ignore[arg-type]
    if isinstance(given, torch.optim.Optimizer):
        kind, how = type(given), dict(given.defaults)
        return name_of(given), lambda parameters: kind(parameters, **how)
    probe = given([nn.Parameter(torch.zeros(1))])
    if not isinstance(probe, torch.optim.Optimizer):
        raise TraceError("optimizer is neither a name nor an optimizer, nor does it make one of parameters")
    return name_of(probe), given


def name_of(optimizer: torch.optim.Optimizer) -> Optimizer:
    """Return the supported optimizer name that is nearest by its states."""
    kind = type(optimizer).__name__.lower()
    if "sgd" in kind:
        momentum = any(group.get("momentum") for group in optimizer.param_groups)
        return Optimizer.SGD_MOMENTUM if momentum else Optimizer.SGD
    return next(
        (name for name in (Optimizer.ADAFACTOR, Optimizer.RMSPROP, Optimizer.ADAMW) if name in kind),
        Optimizer.ADAM,
    )


def versions() -> dict[str, str]:
    """Return the versions of the software that affects a trace."""
    return {
        "gpumemnet": release(),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }
