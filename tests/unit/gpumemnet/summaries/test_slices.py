from __future__ import annotations

import pytest

from gpumemnet.summaries.graph.slices import by_channel
from gpumemnet.summaries.texts.records import Layer

IMAGE = (8, 32, 16, 16)


@pytest.mark.parametrize(
    ("made", "params", "want", "answer"),
    [
        (IMAGE, 32 * 9, IMAGE, True),
        (IMAGE, 32 * 32 * 9, IMAGE, False),
        ((8, 64, 16, 16), 64 * 9, IMAGE, False),
        (IMAGE, None, IMAGE, False),
        ((8,), 9, (8,), False),  # a broken text
    ],
    ids=["depthwise", "dense", "other channels", "no weights", "one dimension"],
)
def test_a_convolution_by_channel_has_fewer_weights_than_pairs(
    made: tuple[int, ...], params: int | None, want: tuple[int, ...], answer: bool
) -> None:
    layer = Layer(kind="conv2d", name="conv", output_shapes=(made,), params=params)
    assert by_channel(layer, want) is answer
