"""Fit cuDNN's thresholds to the workspaces of single convolutions.

Known limitations: drawn convolutions determine the rarer thresholds (image_sums_*, few_images*,
unaligned_channels) only roughly or not at all; undetermined ones stay unchanged. The number of parts of a weight sum
(`part_blocks_*`, `tile` and similar) is not fitted: drawn shapes are often odd, and those use other kernels than
networks do. Depthwise rules for channels last and Fourier transforms are not fitted either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpumemnet.gpu_memory.cudnn.conv_workspace import ConvolutionPlan, workspace_by
from gpumemnet.units import MIB

FITTED = (
    "channel_bytes",
    "few_channels",
    "small_kernel",
    "few_outputs",
    "small_image",
    "strided_forward_channels",
    "strided_data_weights",
    "strided_weight_channels",
    "image_sums_fp32",
    "image_sums_16bit",
    "few_images",
    "few_images_weights",
    "few_images_pixels",
    "unaligned_channels",
)
FACTORS = (0.125, 0.25, 0.5, 0.75, 1.5, 2.0, 4.0, 8.0)
"""Factors of the values to try; each round starts at the best of the last."""
ROUNDS = 3
LEAST_GAIN, LEAST_CALLS = 0.004, 8
"""A number changes only if another explains this share and number more of all calls: some follow no known rule."""
CLOSE = 0.1
"""A call is explained if the rules are within this share of its workspace, or within 1 MiB."""


@dataclass(frozen=True, slots=True)
class ConvolutionSample:
    """One pass of one convolution.

    Attributes:
        plan: The call.
        workspace_bytes: Its workspace.
    """

    plan: ConvolutionPlan
    workspace_bytes: int


@dataclass(frozen=True, slots=True)
class Fitted:
    """A number and how well the calls determine it.

    Attributes:
        value: The number.
        low: The smallest tried value that explains as much.
        high: The largest.
        decided: Whether any tried value explains clearly less.
    """

    value: int
    low: int
    high: int
    decided: bool


def explained(samples: Iterable[ConvolutionSample], rule: Mapping[str, int]) -> int:
    """Count the calls whose workspace the rules explain.

    Args:
        samples: The calls.
        rule: Numbers by name.

    Returns:
        Number of calls within CLOSE or 1 MiB.
    """
    return sum(
        abs(workspace_by(sample.plan, rule) - sample.workspace_bytes)
        <= max(MIB, CLOSE * sample.workspace_bytes)
        for sample in samples
    )


def fit(samples: Sequence[ConvolutionSample], prior: Mapping[str, int]) -> dict[str, Fitted]:
    """Fit the numbers one by one, until none changes.

    Args:
        samples: Workspaces of convolutions with shapes as in networks.
        prior: All of cuDNN's numbers, by name; kept unless the calls clearly contradict them.

    Returns:
        The numbers of FITTED by name.
    """
    rule = dict(prior)
    least = max(LEAST_CALLS, round(LEAST_GAIN * len(samples)))
    found: dict[str, Fitted] = {}
    concerned = _concerned(samples, rule)
    for _ in range(ROUNDS):
        before = dict(rule)
        for name in FITTED:
            found[name] = _one(concerned[name], rule, name, least)
            if found[name].value != rule[name]:
                rule[name] = found[name].value
                concerned = _concerned(samples, rule)
        if rule == before:
            break
    return found


class _Recorded(dict[str, int]):
    """Numbers that record which of them were read."""

    def __init__(self, rule: Mapping[str, int]) -> None:
        super().__init__(rule)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> int:
        self.names.add(name)
        return super().__getitem__(name)


def _concerned(
    samples: Iterable[ConvolutionSample], rule: Mapping[str, int]
) -> dict[str, list[ConvolutionSample]]:
    """Return the calls that each number can affect: those whose workspace reads it, by its name."""
    found: dict[str, list[ConvolutionSample]] = {name: [] for name in FITTED}
    for sample in samples:
        recorded = _Recorded(rule)
        workspace_by(sample.plan, recorded)
        for name in recorded.names & found.keys():
            found[name].append(sample)
    return found


def _one(samples: Sequence[ConvolutionSample], rule: Mapping[str, int], name: str, least: int) -> Fitted:
    """Try other values for a number on the calls that it affects; other calls are explained as before."""
    now = rule[name]
    tried = dict.fromkeys((now, *(max(1, round(now * factor)) for factor in FACTORS)), 0)
    for value in tried:
        tried[value] = explained(samples, {**rule, name: value})
    best = max(tried.values())
    good = [value for value, score in tried.items() if score > best - least]
    value = now if now in good else min(good, key=lambda other: (-tried[other], abs(other - now)))
    return Fitted(value, min(good), max(good), len(good) < len(tried))
