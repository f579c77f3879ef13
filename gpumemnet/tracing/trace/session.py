"""Run one traced training: build, move, train, and collect the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gpumemnet.errors import TraceError
from gpumemnet.gpu_memory.allocator.events import AllocatorCall
from gpumemnet.names import Family, Precision
from gpumemnet.records import field, frozen
from gpumemnet.tracing.trace.build import move_to_cuda, unfilled
from gpumemnet.tracing.trace.checkpoint import switch_on
from gpumemnet.tracing.trace.cuda.device import pretended_cuda
from gpumemnet.tracing.trace.cuda.tensors import CUDA
from gpumemnet.tracing.trace.inputs import InputSpec
from gpumemnet.tracing.trace.loss import step_for, users_step
from gpumemnet.tracing.trace.recording.convolution import Convolution, possible_bytes
from gpumemnet.tracing.trace.recording.recorder import Recorder
from gpumemnet.tracing.trace.recording.workspace import CUBLAS, CUDNN_ATTENTION, Workspaces
from gpumemnet.tracing.trace.step import Step, TracedTraining, optimizer_of, run
from gpumemnet.tracing.trace.target import Target
from gpumemnet.training import TrainingSetup


@frozen
class Trace:
    """A recorded training.

    Attributes:
        events: Allocations and frees in order.
        purpose_of: Purpose of each key: parameters, gradients, optimizer, activations or workspace.
        phase_starts: (number of events then, phase) at the start of inputs, forward, backward and optimizer.
        workspaces: Purpose of each workspace key, for analysis.
        pool_of: The stream whose pool a key belongs to; missing keys belong to the default stream.
        recurrent: Whether the network has recurrent layers.
        cudnn_benchmark: Value of `torch.backends.cudnn.benchmark` at the end.
        parameters: Number of parameters.
        family: Kind of network.
        warnings: The assumptions.
    """

    events: tuple[AllocatorCall, ...]
    purpose_of: dict[int, str]
    phase_starts: tuple[tuple[int, str], ...]
    workspaces: dict[int, Any]
    parameters: int
    family: Family
    warnings: tuple[str, ...]
    pool_of: Mapping[int, int] = field(default_factory=dict)
    recurrent: bool = False
    cudnn_benchmark: bool = False

    def uses_cudnn(self) -> bool:
        """Return whether a convolution, a recurrent layer or cuDNN's attention ran."""
        return self.recurrent or any(
            isinstance(what, Convolution) or what == CUDNN_ATTENTION for what in self.workspaces.values()
        )

    def uses_cublas(self) -> bool:
        """Return whether matrices were multiplied."""
        return self.recurrent or any(what == CUBLAS for what in self.workspaces.values())

    def tries_algorithms(self) -> bool:
        """Return whether cuDNN tried its algorithms: convolutions ran, and its benchmark flag was set."""
        return self.cudnn_benchmark and any(
            isinstance(what, Convolution) for what in self.workspaces.values()
        )

    def largest_convolution_bytes(self) -> int:
        """Return the largest workspace of a convolution that cuDNN takes, or may take; 0 if there is none."""
        calls = {key: what for key, what in self.workspaces.items() if isinstance(what, Convolution)}
        taken = (n_bytes for key, n_bytes in self.events if n_bytes is not None and key in calls)
        return max((*taken, *map(possible_bytes, set(calls.values()))), default=0)


def record(
    make: Callable[[], Target],
    specs: Sequence[InputSpec],
    setup: TrainingSetup,
    *,
    step: Step | None = None,
) -> Trace:
    """Build a model and train it for a few steps on fake tensors.

    Args:
        make: Builds the model on the CPU with unfilled weights.
        specs: The inputs.
        setup: The training setup.
        step: Computes the loss; None for the target's step or loss.

    Raises:
        TraceError: The model does not run on these inputs.
    """
    with unfilled():
        target = make()
    recorder = Recorder(Workspaces())
    warn = recorder.assumptions.warnings.__setitem__
    if setup.gradient_checkpointing:
        warning = switch_on(target.model)
        if warning is not None:
            warn(warning, None)
    half = torch.bfloat16 if setup.precision is Precision.BF16 else None
    family = family_of(target.model)
    try:
        with pretended_cuda(), recorder:
            model = target.model.train()
            move_to_cuda(model, half)
            recorder.enter("inputs")
            batch = {spec.name or str(i): _tensor(spec, half) for i, spec in enumerate(specs)}
            training = TracedTraining(
                model=model,
                batch=batch,
                step=step or _step_of(target, lambda text: warn(text, None)),
                optimizer=target.optimizer or optimizer_of(setup),
                setup=setup,
            )
            run(training, recorder)
    except (TraceError, KeyboardInterrupt):
        raise
    except Exception as exc:
        text = " ".join(str(exc).split())[:300]
        raise TraceError(f"the model does not run on these inputs: {type(exc).__name__}: {text}") from exc
    return Trace(
        events=tuple(recorder.events),
        purpose_of=recorder.purposes(),
        phase_starts=tuple(recorder.phase_starts),
        workspaces=recorder.workspaces,
        parameters=sum(p.numel() for p in target.model.parameters()),
        family=family,
        warnings=recorder.assumptions.sentences(),
        recurrent=is_recurrent(target.model),
        cudnn_benchmark=torch.backends.cudnn.benchmark,
    )


def _step_of(target: Target, warn: Callable[[str], None]) -> Step:
    return users_step(target.step) if target.step is not None else step_for(target.loss, warn)


def _tensor(spec: InputSpec, half: torch.dtype | None) -> Tensor:
    dtype = getattr(torch, spec.dtype)
    if half is not None and dtype == torch.float32:
        dtype = half
    return torch.empty(spec.shape, dtype=dtype, device=CUDA)


def is_recurrent(model: nn.Module) -> bool:
    """Return whether a network has layers that cuDNN runs step by step."""
    return any(isinstance(module, nn.RNNBase) for module in model.modules())


def family_of(model: nn.Module) -> Family:
    """Return the kind of network, from its modules."""
    kinds = {type(module).__name__.lower() for module in model.modules()}
    if any("attention" in kind or "attn" in kind for kind in kinds):
        return Family.TRANSFORMER
    if any(isinstance(module, nn.modules.conv._ConvNd) for module in model.modules()):
        return Family.CNN
    if any(isinstance(module, (nn.RNNBase, nn.EmbeddingBag)) for module in model.modules()):
        return Family.OTHER
    return Family.MLP if any(isinstance(module, nn.Linear) for module in model.modules()) else Family.OTHER
