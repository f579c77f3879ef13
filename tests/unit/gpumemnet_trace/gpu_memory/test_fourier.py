"""Weight gradients that cuDNN takes by Fourier transform, next to what an H200 was recorded to take."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from recorded import convolutions, records, sweeps

torch = pytest.importorskip("torch")

from gpumemnet.gpu_memory.cudnn.conv_fourier import fourier_bytes  # noqa: E402
from gpumemnet.names import ConvPass  # noqa: E402
from gpumemnet.tracing.trace.recording.convolution import (  # noqa: E402
    Convolution,
    possible_bytes,
    workspace_bytes,
)
from gpumemnet.units import MIB  # noqa: E402


def gradient(x: tuple[int, ...], outputs: int, kernel: int, **changes: Any) -> Convolution:
    """The gradient of a weight, padded so that the picture keeps its sides."""
    values: dict[str, Any] = {
        "kind": ConvPass.WEIGHT,
        "x": x,
        "w": (outputs, x[1], kernel, kernel),
        "y": (x[0], outputs, *x[2:]),
        "item_bytes": 4,
        "stride": (1, 1),
        "dilation": (1, 1),
        "groups": 1,
        "transposed": False,
        "channels_last": False,
    }
    return Convolution(**(values | changes))


def test_every_recorded_gradient_in_the_range_took_this_workspace() -> None:
    seen = 0
    for record in sweeps():
        for row in convolutions(record)["convolutions"]:
            side, area = row["y"][2], row["area"]
            if (row["kind"], row["item_bytes"], row["groups"], row["strided"]) != ("weight", 4, 1, False):
                continue
            if area != 9 or side != row["x"][2]:
                continue
            call = gradient(tuple(row["x"]), row["y"][1], 3)
            wanted = fourier_bytes(call.x, call.w, call.y)
            if workspace_bytes(call) == wanted:
                seen += 1
                assert row["workspace_bytes"] == wanted, row
    assert seen >= 5


@pytest.mark.parametrize(("images", "times"), [(64, 12), (16, 0)])
def test_densenet_161_took_it_for_64_images_and_not_for_16(images: int, times: int) -> None:
    """A block of 12 layers on 28x28 pixels, in each of three steps; these runs were not looked at for the rule."""
    call = gradient((images, 192, 28, 28), 48, 3)
    assert (workspace_bytes(call) == fourier_bytes(call.x, call.w, call.y)) == bool(times)
    (sizes,) = (
        record["sizes"]
        for record in records("history_h200.jsonl.xz")
        if (config := record.get("config"))
        and (config["style"], config["batch_size"], config["precision"])
        == ("torchvision:densenet161", images, "fp32")
    )
    assert sizes.count(fourier_bytes(call.x, call.w, call.y)) == 3 * times


@pytest.mark.parametrize(
    ("inputs", "outputs", "mib"), [(128, 64, 412), (128, 32, 338)], ids=["ACGAN", "DenseNet-121"]
)
def test_programs_on_small_pictures_took_it(inputs: int, outputs: int, mib: int) -> None:
    assert workspace_bytes(gradient((64, inputs, 32, 32), outputs, 3)) == mib * MIB


@pytest.mark.parametrize(
    "changes",
    [
        {"item_bytes": 2},
        {"kind": ConvPass.DATA},
        {"kind": ConvPass.FORWARD},
        {"channels_last": True},
        {"transposed": True},
        {"stride": (2, 2), "y": (64, 64, 16, 16)},
        {"dilation": (2, 2)},
        {"y": (64, 80, 32, 32), "w": (80, 128, 3, 3)},
        {"x": (64, 64, 32, 32), "w": (64, 64, 3, 3)},
    ],
)
def test_others_are_as_they_were(changes: dict[str, Any]) -> None:
    call = gradient((64, 128, 32, 32), 64, 3)
    other = dataclasses.replace(call, **changes)
    assert workspace_bytes(other) < workspace_bytes(call) / 3
    assert possible_bytes(other) == 0


def test_a_5x5_gradient_may_take_it() -> None:
    """Inception v3 on pictures of 32x32 did: 245 MiB."""
    call = gradient((64, 48, 30, 30), 64, 5)
    assert math.floor(possible_bytes(call) / MIB) == 245 > 9 * workspace_bytes(call) / MIB
    assert possible_bytes(gradient((64, 48, 30, 30), 256, 5)) == 0
