"""What a trace says about a training job's GPU memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from gpumemnet.gpu_memory.allocator.events import Event, Peaks
from gpumemnet.names import Family
from gpumemnet.records import frozen
from gpumemnet.units import MIB

DOUBT_FIXED_BYTES = 16 * MIB
"""Some small segments more or less."""
DOUBT_SHARE = 0.03
MARGIN_FACTOR = 1.58
"""The 99 % conformal quantile of error over doubt on 260 measured runs of real models that are not held out: 135 drawn
at random (seed 2027 of gpumemnet/learning/dataset/real_draw.py), and 125 of bench/estimator/allocator_history.py,
mostly convolutional."""
QUANTILE_FACTORS = (
    (0.8, 0.156),
    (0.85, 0.213),
    (0.9, 0.405),
    (0.925, 0.496),
    (0.95, 0.908),
    (0.97, 1.183),
    (0.98, 1.405),
    (0.99, MARGIN_FACTOR),
)
"""Conformal quantiles of error over doubt, by share of jobs: on one run, drawn at random, of each of 108 real names
that are not held out (`bench/estimator/trace_accuracy.py --names --seed 2027`). At 99 % they say 1.555; the larger
sample's is kept."""

PURPOSES = ("parameters", "gradients", "optimizer", "activations")


@frozen
class TracedMemory:
    """Peaks of a traced training job, without the process' own base (CUDA context and libraries).

    Attributes:
        allocated_peak_bytes: As `torch.cuda.max_memory_allocated()`.
        reserved_peak_bytes: As `torch.cuda.max_memory_reserved()`; base plus this is what nvidia-smi shows.
        breakdown_bytes: Where the reserved bytes belong at the peak, with the keys of `rad-estimate --json` but "base":
            parameters, gradients, optimizer, activations, and workspace (all else: temporaries, rounding, cache).
        parameters: Number of parameters (elements).
        margin_bytes: What the calibrated bound adds to base + reserved_peak_bytes: exceeded by at most 1 % of jobs.
        convolution_bytes: The largest workspace of one convolution.
        uses_cudnn: Whether convolutions run, whose library adds to the process' base.
        family: Kind of network, from the modules that ran.
        warnings: One sentence for each thing that was assumed.
    """

    allocated_peak_bytes: int
    reserved_peak_bytes: int
    breakdown_bytes: dict[str, int]
    parameters: int
    margin_bytes: int
    convolution_bytes: int = 0
    uses_cudnn: bool
    family: Family
    warnings: tuple[str, ...] = field(default=())


def breakdown(events: Sequence[Event], purpose_of: Mapping[int, str], peaks: Peaks) -> dict[str, int]:
    """Return what was allocated at the peak, by purpose; "workspace" is the rest of what is reserved.

    Args:
        events: As recorded.
        purpose_of: Purpose of each key; keys of other purposes count as workspace.
        peaks: Of the same events.
    """
    live: dict[int, int] = {}
    for key, n_bytes in events[: peaks.allocated_peak_event + 1]:
        if n_bytes is None:
            live.pop(key, None)
        else:
            live[key] = n_bytes
    parts = dict.fromkeys(PURPOSES, 0)
    for key, n_bytes in live.items():
        purpose = purpose_of.get(key, "workspace")
        if purpose in parts:
            parts[purpose] += n_bytes
    parts["workspace"] = max(0, peaks.reserved_bytes - sum(parts.values()))
    return parts


def margin_bytes(reserved_bytes: int, convolution_bytes: int) -> int:
    """Return what the bound adds to the estimate: a multiple of how far off the trace may reasonably be.

    Args:
        reserved_bytes: As simulated; how blocks are split can go either way by a few per cent.
        convolution_bytes: The largest workspace of a convolution; cuDNN may take a kernel that needs more.
    """
    return int(MARGIN_FACTOR * doubt_bytes(reserved_bytes, convolution_bytes))


def quantile_bytes(reserved_bytes: int, convolution_bytes: int) -> tuple[tuple[float, int], ...]:
    """Return what to add to the estimate so that each share of jobs stays below, up to the bound's.

    Args:
        reserved_bytes: As for `margin_bytes`.
        convolution_bytes: Likewise.
    """
    doubt = doubt_bytes(reserved_bytes, convolution_bytes)
    return tuple((share, int(factor * doubt)) for share, factor in QUANTILE_FACTORS)


def doubt_bytes(reserved_bytes: int, convolution_bytes: int) -> int:
    """Return the size of an error that would be no surprise; arguments as for `margin_bytes`."""
    return DOUBT_FIXED_BYTES + int(DOUBT_SHARE * reserved_bytes) + convolution_bytes
