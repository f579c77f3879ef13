"""Convert a trace's result to a profile."""

from __future__ import annotations

from gpumemnet.names import Optimizer, Precision, Source
from gpumemnet.profile.record import ModelProfile
from gpumemnet.tracing.trace.result import TracedMemory
from gpumemnet.training import TrainingSetup


def profile_of(
    traced: TracedMemory, setup: TrainingSetup, *, batch_size: int, seq_len: int = 0, nccl_alone: bool = False
) -> ModelProfile:
    """Return the profile of a trace: the allocator's totals, and the purposes of bytes at the peak.

    Args:
        traced: The trace's result, in bytes.
        setup: The training setup.
        batch_size: Samples per step.
        seq_len: Tokens per sample; 0 if there are none.
        nccl_alone: Whether the process is alone in a group that uses NCCL.
    """
    parts = traced.breakdown_bytes
    numbers = dict.fromkeys(_UNKNOWN, 0) | {
        "parameters": traced.parameters,
        "parameter_bytes": parts["parameters"],
        "gradient_bytes": parts["gradients"],
        "optimizer_bytes": parts["optimizer"],
        "saved_bytes": parts["activations"],
        "allocated_bytes": traced.allocated_peak_bytes,
        "reserved_bytes": traced.reserved_peak_bytes,
        "borrowed_bytes": traced.convolution_bytes,
        "convs": int(traced.uses_cudnn),
        "linears": int(traced.uses_cublas),
        "benchmark": int(traced.benchmark),
        "nccl_alone": int(nccl_alone),
    }
    return ModelProfile(
        family=traced.family,
        source=Source.TRACE,
        optimizer=Optimizer(setup.optimizer),
        precision=Precision(setup.precision),
        gradient_checkpointing=int(setup.gradient_checkpointing),
        gpus=setup.gpus,
        batch_size=batch_size,
        seq_len=seq_len,
        **numbers,
    )


_KNOWN = (
    "family",
    "source",
    "optimizer",
    "precision",
    "gradient_checkpointing",
    "gpus",
    "batch_size",
    "seq_len",
)
_UNKNOWN = tuple(name for name in ModelProfile._fields if name not in _KNOWN)
