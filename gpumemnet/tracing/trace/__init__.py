"""Determine a model's GPU memory by tracing a real training step on fake tensors: no GPU, weights or data.

The user names a function that builds the model. The model runs forward, loss, backward and optimizer step for two
whole steps on tensors that have shapes and a device but no storage. Every allocation that PyTorch would make on the
GPU is recorded in order and replayed through a simulation of its caching allocator (`gpumemnet.gpu_memory.allocator`).

The named object (`pkg.mod:name` or `path/to/file.py:name`) may be:

- an `nn.Module`, or a function of no arguments that returns one. The loss is the output's `.loss` (Hugging Face), its
  "loss" entry, the output itself if it is a scalar, and otherwise cross entropy (class scores) or the mean square;
- a function that returns `(model, loss)`, where `loss(output, target)` is a scalar; the input named `target` is the
  target; without one, a target is invented for losses of `torch.nn`;
- a function that returns a dictionary with "model" and, as needed, "loss" as above; "step", where
  `step(model, inputs)` takes the dictionary of inputs and returns the scalar to differentiate; and "optimizer",
  where `optimizer(parameters)` returns a `torch.optim.Optimizer` that replaces `--optimizer`.

`hf:PATH` names a folder with a config.json of Hugging Face Transformers; its inputs are optional.

Importing this package imports no torch; `trace_module` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpumemnet.errors import TraceError
from gpumemnet.gpu_memory.allocator.events import replay
from gpumemnet.tracing.trace.result import TracedMemory, breakdown

if TYPE_CHECKING:
    from gpumemnet.tracing.trace.inputs import InputSpec
    from gpumemnet.tracing.trace.session import Trace
    from gpumemnet.training import TrainingSetup

__all__ = ["TracedMemory", "memory_of", "trace_module"]


def trace_module(spec: str, *, inputs: Sequence[str], setup: TrainingSetup) -> TracedMemory:
    """Trace two training steps of the model that `spec` names and return its GPU memory.

    Args:
        spec: "pkg.mod:name" or "path/to/file.py:name"; the current directory is searched first.
        inputs: One text per input, "[name=]SHAPE[:dtype]", as in "128x3x224x224", "input_ids=8x512:int64" or
            "Bx3x224x224"; B is the setup's batch size and S its sequence length. Unnamed ones are
            positional. The dtype defaults to float32. The input named `target` goes to the loss.
        setup: Optimizer, precision and gradient checkpointing; batch_size and seq_len fill B and S.

    Returns:
        Peaks of the memory that PyTorch allocates and reserves, and the purposes of the allocated bytes.

    Raises:
        TraceError: PyTorch is not installed, the name cannot be imported, an input is malformed, or the model does
            not run on these inputs; one line that names the cause.
    """
    try:
        import torch  # noqa: F401
    except ImportError as exc:
        raise TraceError("--module needs PyTorch; install it, or give a model summary instead") from exc
    from gpumemnet.tracing.trace import session, target

    specs = inputs_of(spec, inputs, setup)
    found = target.find(spec)
    trace = session.record(lambda: target.build(found, spec), specs, setup)
    return memory_of(trace)


def inputs_of(spec: str, inputs: Sequence[str], setup: TrainingSetup) -> tuple[InputSpec, ...]:
    """Return the inputs of a module; arguments as for `trace_module`. For `hf:PATH` they are optional.

    Raises:
        TraceError: An input is malformed or missing.
    """
    from gpumemnet.tracing.trace import hugging_face
    from gpumemnet.tracing.trace.inputs import parse_inputs

    if not inputs and spec.startswith(hugging_face.PREFIX):
        inputs = hugging_face.inputs(spec)
    return parse_inputs(inputs, setup)


def memory_of(trace: Trace, *, expandable_segments: bool = False) -> TracedMemory:
    """Replay a recorded training through the simulated allocator and sum up its memory.

    Args:
        trace: The recorded training.
        expandable_segments: The effect of `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.
    """
    peaks = replay(trace.events, pool_of=trace.pool_of, expandable_segments=expandable_segments)
    return TracedMemory(
        allocated_peak_bytes=peaks.allocated_bytes,
        reserved_peak_bytes=peaks.reserved_bytes,
        breakdown_bytes=breakdown(trace.events, trace.purpose_of, peaks),
        parameters=trace.parameters,
        convolution_bytes=trace.largest_convolution_bytes(),
        uses_cudnn=trace.uses_cudnn(),
        uses_cublas=trace.uses_cublas(),
        benchmark=trace.tries_algorithms(),
        family=trace.family,
        warnings=trace.warnings,
    )
