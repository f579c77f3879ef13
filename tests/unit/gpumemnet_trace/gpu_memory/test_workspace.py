from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from gpumemnet.tracing.trace.recording.convolution import Convolution, workspace_bytes  # noqa: E402
from gpumemnet.tracing.trace.recording.workspace import reduction_bytes  # noqa: E402
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
    assert reduction_bytes(torch.empty(shape, device="meta"), dims) == mib * MIB


@pytest.mark.parametrize(
    ("shape", "dims"), [((64, 100), [0]), ((64, 100), [1]), ((1, 5), [0]), ((3, 4), None)]
)
def test_short_sums_borrow_nothing(shape: tuple[int, ...], dims: list[int] | None) -> None:
    assert reduction_bytes(torch.empty(shape, device="meta"), dims) == 0


def test_a_sum_along_rows_borrows_little() -> None:
    # Blocks pass on one number per output, not one per lane.
    assert reduction_bytes(torch.empty((4, 1 << 22), device="meta"), [1]) < MIB


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


def mib(
    kind: str, x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], item: int = 4, **more: object
) -> float:
    """The workspace of a convolution of pictures; a stride where the output is smaller."""
    stride = (2, 2) if y[-1] * 2 <= x[-1] + 1 else (1, 1)
    shapes: dict[str, object] = {"kind": kind, "x": x, "w": w, "y": y, "item_bytes": item, "stride": stride}
    return workspace_bytes(call(**(shapes | more))) / MIB


@pytest.mark.parametrize(
    ("kind", "x", "w", "y", "item", "measured"),
    [
        # Copies with the channels last, padded to 16 bytes; a picture's three channels count as four.
        ("forward", (96, 128, 112, 112), (128, 128, 3, 3), (96, 128, 112, 112), 4, 1182.56),
        ("data", (64, 64, 112, 112), (96, 64, 3, 3), (64, 96, 56, 56), 2, 134.86),
        ("forward", (16, 3, 224, 224), (96, 3, 7, 7), (16, 96, 112, 112), 4, 85.82),
        # Small kernels over pictures run in place, but for a weight gradient in 16 bits.
        ("forward", (96, 3, 224, 224), (64, 3, 3, 3), (96, 64, 224, 224), 4, 0.0),
        ("weight", (96, 3, 224, 224), (64, 3, 3, 3), (96, 64, 224, 224), 4, 0.0),
        ("weight", (128, 3, 224, 224), (24, 3, 3, 3), (128, 24, 112, 112), 2, 173.20),
        # One pixel: nothing forward; a weight gradient for each picture, or copies where that is less.
        ("forward", (256, 96, 28, 28), (56, 96, 1, 1), (256, 56, 28, 28), 4, 0.0),
        ("weight", (64, 128, 28, 28), (256, 128, 1, 1), (64, 256, 28, 28), 4, 8.0),
        ("weight", (32, 256, 14, 14), (1024, 256, 1, 1), (32, 1024, 14, 14), 4, 32.0),
        ("weight", (64, 2064, 7, 7), (192, 2064, 1, 1), (64, 192, 7, 7), 2, 13.5),
        # One pixel with a stride.
        ("data", (64, 64, 56, 56), (128, 64, 1, 1), (64, 128, 28, 28), 4, 0.0),
        ("data", (64, 256, 56, 56), (512, 256, 1, 1), (64, 512, 28, 28), 4, 294.0),
        ("data", (256, 32, 56, 56), (64, 32, 1, 1), (256, 64, 28, 28), 2, 73.5),
        # Weight gradients of few tiles are summed in parts.
        ("weight", (64, 64, 64, 64), (64, 64, 3, 3), (64, 64, 64, 64), 4, 130.11),
        ("weight", (32, 128, 56, 56), (256, 128, 3, 3), (32, 256, 56, 56), 4, 156.0),
        ("weight", (96, 128, 112, 112), (128, 128, 3, 3), (96, 128, 112, 112), 2, 595.59),
    ],
)
def test_convolutions_borrow_what_an_h200_was_recorded_to(
    kind: str, x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], item: int, measured: float
) -> None:
    assert mib(kind, x, w, y, item) == pytest.approx(measured, rel=0.01, abs=0.01)


def test_groups_count_as_they_are_or_padded_to_one_power_of_two() -> None:
    x, w, y = (64, 128, 56, 56), (256, 64, 3, 3), (64, 256, 56, 56)
    assert mib("data", x, w, y, groups=2) == pytest.approx(294.56, rel=0.001)
    # 20 channels a group count as 32.
    odd = mib("forward", (8, 40, 32, 32), (40, 20, 3, 3), (8, 40, 32, 32), groups=2)
    assert odd == pytest.approx(2 * 8 * 64 * 32 * 32 * 4 / MIB, rel=0.04)


def test_a_single_channel_is_not_padded() -> None:
    # Of a row of the training set whose process used 4,936 MiB; padded, its trace came to 7,396.
    shapes = (1024, 1, 400, 400), (80, 1, 16, 16), (1024, 80, 25, 25)
    assert mib("forward", *shapes, 2, stride=(16, 16)) == pytest.approx(410.2, rel=0.001)


@pytest.mark.parametrize(
    ("channels", "side", "item", "measured"), [(96, 56, 4, 303.48), (192, 28, 4, 156.77), (768, 7, 2, 36.75)]
)
def test_depthwise_weights_of_channels_last_are_summed_in_many_parts(
    channels: int, side: int, item: int, measured: float
) -> None:
    x = (32, channels, side, side)
    taken = mib("weight", x, (channels, 1, 7, 7), x, item, groups=channels, channels_last=True)
    assert taken == pytest.approx(measured, rel=0.02)


def test_a_transposed_convolution_is_the_gradient_of_one() -> None:
    forward = mib("forward", (8, 64, 28, 28), (64, 32, 2, 2), (8, 32, 56, 56), transposed=True, stride=(2, 2))
    assert forward == mib("data", (8, 32, 56, 56), (64, 32, 2, 2), (8, 64, 28, 28))


def test_indices_beyond_32_bits_take_another_kernel() -> None:
    big = call(x=(1024, 64, 320, 320), w=(256, 64, 3, 3), y=(1024, 256, 160, 160), stride=(2, 2))
    assert workspace_bytes(big) == 2 * 1024 * 64 * 320 * 320
