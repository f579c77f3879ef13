from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from gpumemnet.trace.convolution import Convolution, workspace_bytes  # noqa: E402
from gpumemnet.trace.reduction import buffer_bytes  # noqa: E402
from gpumemnet.units import MIB  # noqa: E402


@pytest.mark.parametrize(
    ("shape", "dims", "mib"),
    [
        # Found on an H200: what the peak of a perceptron exceeded its tensors by, at the bias' gradient.
        ((16384, 288), [0], 36.0),
        ((16384, 480), [0], 60.0),
        ((3030, 2592), [0], 60.75),
    ],
)
def test_long_sums_borrow_what_was_measured(shape: tuple[int, ...], dims: list[int], mib: float) -> None:
    assert buffer_bytes(torch.empty(shape, device="meta"), dims) == mib * MIB


@pytest.mark.parametrize(
    ("shape", "dims"), [((64, 100), [0]), ((64, 100), [1]), ((1, 5), [0]), ((3, 4), None)]
)
def test_short_sums_borrow_nothing(shape: tuple[int, ...], dims: list[int] | None) -> None:
    assert buffer_bytes(torch.empty(shape, device="meta"), dims) == 0


def test_a_sum_along_rows_borrows_little() -> None:
    # Blocks pass on one number per output, not one per lane.
    assert buffer_bytes(torch.empty((4, 1 << 22), device="meta"), [1]) < MIB


def call(**changes: object) -> Convolution:
    settings: dict[str, object] = {
        "kind": "forward",
        "x": (4, 16, 48, 48, 48),
        "w": (16, 16, 7, 7, 7),
        "y": (4, 16, 48, 48, 48),
        "item_bytes": 2,
        "stride": (1, 1, 1),
        "dilation": (1, 1, 1),
        "groups": 1,
        "transposed": False,
        "channels_last": False,
    }
    return Convolution(**(settings | changes))  # type: ignore[arg-type]


def test_a_convolution_borrows_its_three_tensors() -> None:
    # Measured: 27.0 MiB for this call.
    assert round(workspace_bytes(call()) / MIB, 1) == 27.2


def test_pixelwise_depthwise_and_channels_last_ones_borrow_nothing() -> None:
    assert workspace_bytes(call(w=(16, 16, 1, 1, 1))) == 0
    assert workspace_bytes(call(w=(16, 1, 7, 7, 7), groups=16)) == 0
    assert workspace_bytes(call(channels_last=True)) == 0


def test_backward_through_a_strided_pixel_borrows_as_others_do() -> None:
    # Measured: 914 MiB, of which the three tensors are 912.
    shapes = {"x": (512, 152, 64, 64), "w": (304, 152, 1, 1), "y": (512, 304, 32, 32), "stride": (2, 2)}
    assert workspace_bytes(call(**shapes)) == 0
    assert round(workspace_bytes(call(kind="data", **shapes)) / MIB) == 912


def test_weight_gradients_of_few_tiles_are_summed_in_parts() -> None:
    shapes = {"x": (171, 224, 14, 14), "w": (224, 224, 3, 3), "y": (171, 224, 14, 14), "stride": (1, 1)}
    forward, weight = (workspace_bytes(call(kind=kind, **shapes)) for kind in ("forward", "weight"))
    # 2 x 16 tiles of 128 x 128 leave room for 8 parts of fp32 weights among 264 blocks.
    assert weight - forward == 8 * 4 * 224 * 224 * 9


def test_indices_beyond_32_bits_take_another_kernel() -> None:
    big = call(x=(1024, 64, 320, 320), w=(256, 64, 3, 3), y=(1024, 256, 160, 160), stride=(2, 2))
    assert workspace_bytes(big) == 2 * 1024 * 64 * 320 * 320
