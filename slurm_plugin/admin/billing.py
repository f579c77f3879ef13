"""Billing weights under which a GPU and all of its shards are billed alike.

A job that shares a GPU has `gres/shard` and no `gres/gpu`, so a limit on GPUs does not apply to it, and two limits, one
for each, would allow both side by side. The one number that counts GPUs and shards together is `billing`: the sum of a
job's allocation, times the weights of its partition (slurm.conf(5), TRESBillingWeights). Slurm bills whole units and
drops the rest, so a shard must be worth a whole number of them; else jobs of one shard would be cheaper, or free.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

_WEIGHT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([KMGTP]?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """TRESBillingWeights of one partition.

    Attributes:
        others: Other resources, as written: {"CPU": "1.0", "Mem": "0.25G"}.
        gpu: Weight of a GPU, the largest where types differ; None if it has none.
        shard: Weight of a shard; None if it has none.
    """

    others: Mapping[str, str]
    gpu: Fraction | None
    shard: Fraction | None

    def times(self, factor: int) -> dict[str, str]:
        """Return the other weights multiplied by a factor."""
        if factor == 1:
            return dict(self.others)
        return {name: _multiplied(text, factor) for name, text in self.others.items()}


def parse_weights(text: str) -> Weights:
    """Return the weights of a partition.

    >>> parse_weights("CPU=1.0,GRES/gpu:a100=16,gres/shard=0.25")
    Weights(others={'CPU': '1.0'}, gpu=Fraction(16, 1), shard=Fraction(1, 4))
    """
    others: dict[str, str] = {}
    gpus: list[Fraction] = []
    shards: list[Fraction] = []
    for item in filter(None, re.split(r"[,\s]+", text.strip('"'))):
        name, _, value = item.partition("=")
        kind = name.lower().partition(":")[0]
        match = _WEIGHT.match(value)
        if match is None or kind not in ("gres/gpu", "gres/shard"):
            others |= {name: value} if value and name.lower() != "(null)" else {}
        else:
            (gpus if kind == "gres/gpu" else shards).append(Fraction(match[1]))
    return Weights(others=others, gpu=max(gpus, default=None), shard=max(shards, default=None))


def fair(weights: Weights, shards: int) -> bool:
    """Return whether no way to request a GPU's worth of shards is cheaper than the GPU.

    Args:
        weights: A partition's weights.
        shards: Shards of one GPU.

    >>> fair(parse_weights("GRES/gpu=39,GRES/shard=1"), 39), fair(parse_weights("GRES/gpu=16,GRES/shard=0.41"), 39)
    (True, False)
    """
    if not weights.gpu:
        return not weights.shard
    least = math.floor(weights.shard or 0)  # jobs of one shard each are the cheapest variant
    return (shards + 1) * least > weights.gpu and math.floor(shards * (weights.shard or 0)) <= weights.gpu


def unit(partitions: Mapping[str, tuple[Weights, int]]) -> int:
    """Return the factor for the weights of all partitions that makes each shard worth a whole number.

    Args:
        partitions: Name -> its weights and the shards of one of its GPUs; 0 where GPUs are not shared.

    >>> unit({"gpu": (parse_weights(""), 39)}), unit({"gpu": (parse_weights("CPU=1,GRES/gpu=16"), 39)})
    (39, 39)
    >>> unit({"a": (parse_weights("GRES/gpu=39"), 39), "b": (parse_weights("GRES/gpu=39"), 79)})
    79
    """
    factor = 1
    for weights, shards in partitions.values():
        each = (weights.gpu or Fraction(1)) / (shards or 1)
        factor = math.lcm(factor, each.denominator)
    return factor


def line(weights: Weights, shards: int, factor: int) -> str:
    """Return TRESBillingWeights that bill a GPU and all of its shards alike.

    Args:
        weights: The partition's current weights.
        shards: Shards of one of its GPUs; 0 where they are not shared.
        factor: From `unit`.

    >>> line(parse_weights("CPU=1.0,Mem=0.25G,GRES/gpu=16"), 39, 39)
    'CPU=39,Mem=9.75G,GRES/gpu=624,GRES/shard=16'
    """
    gpu = (weights.gpu or Fraction(1)) * factor
    parts = [f"{name}={value}" for name, value in weights.times(factor).items()]
    parts.append(f"GRES/gpu={_text(gpu)}")
    if shards:
        parts.append(f"GRES/shard={_text(gpu / shards)}")
    return ",".join(parts)


def _multiplied(text: str, factor: int) -> str:
    match = _WEIGHT.match(text)
    return text if match is None else f"{_text(Fraction(match[1]) * factor)}{match[2]}"


def _text(number: Fraction) -> str:
    return f"{float(number):.12g}"
