"""GPU memory of a training job as found by a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpumemnet.gpu_memory.allocator.events import AllocatorCall, AllocatorPeaks
from gpumemnet.names import Family
from gpumemnet.records import field, frozen
from gpumemnet.units import MIB

DOUBT_FIXED_BYTES = 16 * MIB
"""A few small segments more or less."""
DOUBT_SHARE = 0.03
MARGIN_FACTOR = 1.58
"""The 99 % conformal quantile of error over `doubt_bytes` on 260 measured runs of real models that are not held out:
135 drawn at random (seed 2027 of gpumemnet/learning/dataset/real_draw.py), and 125 of
bench/estimator/allocator_history.py, mostly convolutional."""
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
"""Conformal quantiles of error over `doubt_bytes`, by share of jobs: on one run, drawn at random, of each of 108 real
names that are not held out (`bench/estimator/trace_accuracy.py --names --seed 2027`). At 99 % they give 1.555; the
larger sample's is kept."""
BENCHMARK_FACTORS = (
    (0.8, 0.929),
    (0.85, 0.964),
    (0.9, 1.098),
    (0.925, 2.107),
    (0.95, 2.519),
    (0.97, 2.794),
    (0.98, 3.016),
    (0.99, 3.191),
)
"""The same where cuDNN tries its algorithms (`torch.backends.cudnn.benchmark`): 28 trainings of 18 networks on an H100
(`bench/estimator/benchmark_quantiles.py`). Above 92.5 %, which 18 networks can show, they rise as those above do."""

PURPOSES = ("parameters", "gradients", "optimizer", "activations")


@frozen
class TracedMemory:
    """Peaks of a traced training job, without the process' base (CUDA context and libraries).

    Attributes:
        allocated_peak_bytes: As `torch.cuda.max_memory_allocated()`.
        reserved_peak_bytes: As `torch.cuda.max_memory_reserved()`; base plus this is what nvidia-smi shows.
        breakdown_bytes: Reserved bytes at the peak by purpose, with the keys of `rad-estimate --json` except "base":
            parameters, gradients, optimizer, activations, and workspace (all else: temporaries, rounding, cache).
        parameters: Number of parameters (elements).
        convolution_bytes: The largest workspace of one convolution.
        uses_cudnn: Whether convolutions run; their library adds to the process' base.
        uses_cublas: Likewise for products of matrices.
        benchmark: Whether cuDNN tries its algorithms for them.
        family: Kind of network, determined from the modules that ran.
        warnings: One sentence for each assumption.
    """

    allocated_peak_bytes: int
    reserved_peak_bytes: int
    breakdown_bytes: dict[str, int]
    parameters: int
    convolution_bytes: int = 0
    uses_cudnn: bool
    uses_cublas: bool = True
    benchmark: bool = False
    family: Family
    warnings: tuple[str, ...] = field(default=())


def breakdown(
    events: Sequence[AllocatorCall], purpose_of: Mapping[int, str], peaks: AllocatorPeaks
) -> dict[str, int]:
    """Return the allocated bytes at the peak, by purpose; "workspace" is the rest of the reserved memory.

    Args:
        events: The recorded events.
        purpose_of: Purpose of each key; keys of other purposes count as workspace.
        peaks: Peaks of the same events.
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


def quantile_bytes(
    reserved_bytes: int, convolution_bytes: int, *, benchmark: bool = False, further_bytes: int = 0
) -> tuple[tuple[float, int], ...]:
    """Return the margin above the estimate for each share of jobs, up to the bound's share.

    Each is a multiple of the plausible error of the trace.

    Args:
        reserved_bytes: Simulated bytes; block splitting can change them by a few per cent either way.
        convolution_bytes: The largest workspace of a convolution; cuDNN may choose a kernel that needs more.
        benchmark: Whether cuDNN tries its algorithms and takes the fastest.
        further_bytes: Added at the bound's share for kinds of doubt (`uncertainty.py`), and in proportion below.
    """
    doubt = doubt_bytes(reserved_bytes, convolution_bytes)
    factors = BENCHMARK_FACTORS if benchmark else QUANTILE_FACTORS
    most = factors[-1][1]
    return tuple((share, int(factor * doubt + factor / most * further_bytes)) for share, factor in factors)


def doubt_bytes(reserved_bytes: int, convolution_bytes: int) -> int:
    """Return the plausible size of an error; arguments as for `quantile_bytes`."""
    return DOUBT_FIXED_BYTES + int(DOUBT_SHARE * reserved_bytes) + convolution_bytes
