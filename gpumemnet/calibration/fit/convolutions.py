"""cuDNN's thresholds, from the workspaces of single convolutions.

Known limitations: drawn convolutions decide the rarer thresholds (image_sums_*, few_images*, unaligned_channels) only
roughly or not at all; what they do not decide stays as it was. How many parts a weight gradient is
summed in (`part_blocks_*`, `tile` and their like) is not fitted: odd shapes, which drawn ones are full of, follow other
kernels than those of networks. Depthwise rules for channels last and Fourier transforms are not fitted either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpumemnet.gpu_memory.cudnn.conv_workspace import Plan, workspace_by
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
"""Other values that are tried, as multiples; a round of tries begins at the last one's best."""
ROUNDS = 3
LEAST_GAIN, LEAST_CALLS = 0.004, 8
"""A number changes only if another explains so much more of all calls: some take what no rule of ours says."""
CLOSE = 0.1
"""A call is explained if the rules come so close to its workspace, or within 1 MiB."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One pass of one convolution.

    Attributes:
        plan: The call.
        workspace_bytes: Its workspace.
    """

    plan: Plan
    workspace_bytes: int


@dataclass(frozen=True, slots=True)
class Fitted:
    """A number and how well the calls decide it.

    Attributes:
        value: The number.
        low: The least value that was tried and explains as much.
        high: The largest.
        decided: Whether any value that was tried explains clearly less.
    """

    value: int
    low: int
    high: int
    decided: bool


def explained(samples: Iterable[Sample], rule: Mapping[str, int]) -> int:
    """Count the calls whose workspace the rules tell.

    Args:
        samples: The calls.
        rule: Numbers by name.

    Returns:
        How many come within CLOSE or 1 MiB.
    """
    return sum(
        abs(workspace_by(sample.plan, rule) - sample.workspace_bytes)
        <= max(MIB, CLOSE * sample.workspace_bytes)
        for sample in samples
    )


def fit(samples: Sequence[Sample], prior: Mapping[str, int]) -> dict[str, Fitted]:
    """Fit the numbers one after the other, until none changes.

    Args:
        samples: Workspaces of convolutions, of shapes as networks have them.
        prior: All of cuDNN's numbers, by name; kept where the calls do not clearly ask for others.

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


class _Asked(dict[str, int]):
    """Numbers that note which of them were asked for."""

    def __init__(self, rule: Mapping[str, int]) -> None:
        super().__init__(rule)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> int:
        self.names.add(name)
        return super().__getitem__(name)


def _concerned(samples: Iterable[Sample], rule: Mapping[str, int]) -> dict[str, list[Sample]]:
    """Return the calls that another value of a number could change: those whose workspace asks for it, by its name."""
    found: dict[str, list[Sample]] = {name: [] for name in FITTED}
    for sample in samples:
        asked = _Asked(rule)
        workspace_by(sample.plan, asked)
        for name in asked.names & found.keys():
            found[name].append(sample)
    return found


def _one(samples: Sequence[Sample], rule: Mapping[str, int], name: str, least: int) -> Fitted:
    """Try other values for one number on the calls that it concerns; what it explains of all others stays as it is."""
    now = rule[name]
    tried = dict.fromkeys((now, *(max(1, round(now * factor)) for factor in FACTORS)), 0)
    for value in tried:
        tried[value] = explained(samples, {**rule, name: value})
    best = max(tried.values())
    good = [value for value, score in tried.items() if score > best - least]
    value = now if now in good else min(good, key=lambda other: (-tried[other], abs(other - now)))
    return Fitted(value, min(good), max(good), len(good) < len(tried))
