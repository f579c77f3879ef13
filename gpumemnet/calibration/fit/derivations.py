"""Convert each part's results to numbers by name, per library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from gpumemnet.calibration.fit import convolutions, segments
from gpumemnet.calibration.fit.parts import CONVOLUTIONS
from gpumemnet.errors import SetupError
from gpumemnet.gpu_memory.cudnn.conv_workspace import ConvolutionPlan
from gpumemnet.gpu_memory.rules import numbers
from gpumemnet.names import ConvPass
from gpumemnet.units import MIB

Seen = Mapping[str, Mapping[str, Any]]
"""Result of each part of the measurement, by the part's name."""
Derived = tuple[dict[str, int], list[str]]


def _device(seen: Seen) -> Derived:
    return {name: int(seen["device"][name]) for name in ("multiprocessors", "threads")}, []


def _process(seen: Seen) -> Derived:
    conv, dense, convs_only = (_bytes(seen[name]["base_bytes"]) for name in ("conv", "dense", "convs_only"))
    values = {"memory": _bytes(seen["device"]["memory_bytes"]), "conv_base": conv, "base": dense}
    if convs_only < conv:
        return values | {"without_cublas": conv - convs_only}, []
    return values, ["process: a network of convolutions alone uses as much as others here"]


def _bytes(value: int | Sequence[int]) -> int:
    """Return the middle of several readings, rounded up to whole MiB."""
    middle = median(value) if isinstance(value, Sequence) else value
    if middle <= 0:
        raise SetupError(f"a process cannot use {middle} bytes")
    return -(-int(middle) // MIB) * MIB


def _allocator(seen: Seen) -> Derived:
    pairs = [(int(request), int(segment)) for request, segment in seen["segments"]["segments"]]
    return segments.fit(pairs, numbers.of("allocator", numbers.REFERENCE_GPU)), []


def _cublas(seen: Seen) -> Derived:
    values = seen["cublas"]
    found = {
        "handle_workspace": _bytes(values["handle_bytes"]),
        "workspaces": _bytes(values["both_threads_bytes"]),
    }
    if not values["lt_bytes"]:  # PyTorch before 2.7 frees it at once, and some later ones share cuBLAS'
        return found, ["cublas: nothing stays of cuBLASLt's workspace; lt_handle_workspace stays as it was"]
    return found | {"lt_handle_workspace": _bytes(values["lt_bytes"])}, []


def _cudnn(seen: Seen) -> Derived:
    prior = dict(numbers.of("cudnn", numbers.REFERENCE_GPU))
    prior["part_blocks_fp32"] = int(seen["device"]["multiprocessors"])
    samples = [
        sample(values) for name in CONVOLUTIONS if name in seen for values in seen[name]["convolutions"]
    ]
    if not samples:
        raise SetupError("no convolution ran")
    fitted = convolutions.fit(samples, prior)
    share = convolutions.explained(samples, prior | {name: one.value for name, one in fitted.items()}) / len(
        samples
    )
    notes = [f"cudnn: the rules match {share:.0%} of {len(samples)} calls within a tenth"]
    notes += [
        f"cudnn: {name} = {one.value}; {one.low} to {one.high} explain as much"
        for name, one in fitted.items()
        if one.decided and one.low < one.high
    ]
    return {
        "part_blocks_fp32": prior["part_blocks_fp32"],
        **{name: one.value for name, one in fitted.items() if one.decided},
    }, notes


def sample(values: Mapping[str, Any]) -> convolutions.ConvolutionSample:
    """Parse one pass of a convolution, as written by the measuring program.

    Args:
        values: "kind", "x" and "y" (batch, channels, sides), "area",
            "groups", "item_bytes", "strided", "workspace_bytes".

    Raises:
        KeyError: One of them is missing.
        ValueError: The kind is unknown.
    """
    plan = ConvolutionPlan(
        kind=ConvPass(values["kind"]),
        x=tuple(values["x"]),
        y=tuple(values["y"]),
        area=values["area"],
        groups=values["groups"],
        item_bytes=values["item_bytes"],
        strided=values["strided"],
    )
    return convolutions.ConvolutionSample(plan, values["workspace_bytes"])


def _mps(seen: Seen) -> Derived:
    return {name: _bytes(seen["mps"][f"{name}_bytes"]) for name in ("server", "client")}, []


DERIVATIONS: tuple[tuple[str, tuple[str, ...], Callable[[Seen], Derived]], ...] = (
    ("device", ("device",), _device),
    ("process", ("conv", "dense", "convs_only"), _process),
    ("allocator", ("segments",), _allocator),
    ("cublas", ("cublas",), _cublas),
    ("cudnn", (), _cudnn),
    ("mps", ("mps",), _mps),
)
"""Library, the parts with its results, and the conversion."""
