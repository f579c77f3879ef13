"""Infer shapes of layers on images, sounds and volumes, from the arguments that `print(model)` shows."""

from __future__ import annotations

import math

from gpumemnet.summaries.shapes.walk import Dims, ShapeWalk, Step
from gpumemnet.summaries.texts.arguments import integer, sides
from gpumemnet.summaries.texts.records import Layer

IMAGE_SIDE = 224
"""Assumed side of an image: the training size of most published vision models."""
VOLUME_SIDE = 128
"""Assumed side of a volume: the usual size of the parts that segmentation is trained with."""
FRAMES = 16
"""Assumed length of a video."""
SAMPLES = 16000
"""Assumed length of a sound: a second."""
_PATCH = 4
"""Least stride of a convolution that cuts an image into patches."""


def conv(walk: ShapeWalk, layer: Layer) -> Step:
    """Infer a convolution from its arguments.

    Args:
        walk: Shapes and layers so far.
        layer: The layer, with its arguments.
    """
    dims = next((int(letter) for letter in layer.kind if letter.isdigit()), 2)
    channels, outs = (
        integer(layer.args, "in_channels", default=3),
        integer(layer.args, "out_channels", default=1),
    )
    if not walk.current:
        _start_image(walk, layer, channels, dims)
    if dims == 1 and len(walk.current) == 3 and walk.embedding is not None:
        return _along_tokens(walk, layer, channels, outs)
    source = _with_channels(walk, channels, dims)
    kernel, stride = sides(layer.args, "kernel_size", dims, 1), sides(layer.args, "stride", dims, 1)
    dilation = sides(layer.args, "dilation", dims, 1)
    if layer.args.get("padding") == "same":
        padding = tuple((k - 1) // 2 for k in kernel)
    else:
        padding = sides(layer.args, "padding", dims, 0)
    if "same" in layer.kind:
        size = tuple(-(-n // max(s, 1)) for n, s in zip(source[2:], stride, strict=True))
    elif "transpose" in layer.kind:
        size = tuple(
            (n - 1) * s - 2 * p + k for n, s, p, k in zip(source[2:], stride, padding, kernel, strict=True)
        )
        size = _within_input(walk, size)
    else:
        size = tuple(
            (n + 2 * p - d * (k - 1) - 1) // max(s, 1) + 1
            for n, p, d, k, s in zip(source[2:], padding, dilation, kernel, stride, strict=True)
        )
    if kernel == stride and max(stride) >= _PATCH and "transpose" not in layer.kind:
        walk.patches = outs
    return source, (walk.batch, outs, *(max(n, 1) for n in size)), None


def _along_tokens(walk: ShapeWalk, layer: Layer, channels: int, outs: int) -> Step:
    """Infer a convolution along the tokens of a language model, whose channels come last in all other layers."""
    tokens = walk.current[1]
    (stride,) = sides(layer.args, "stride", 1, 1)
    return (walk.batch, tokens, channels), (walk.batch, max(tokens // max(stride, 1), 1), outs), None


def _start_image(walk: ShapeWalk, layer: Layer, channels: int, dims: int) -> None:
    if walk.given and len(walk.given) == dims + 2:
        walk.current = (walk.batch, *walk.given[1:])
    elif walk.given and len(walk.given) == dims + 1 and channels == 1:
        walk.current = (walk.batch, 1, *walk.given[1:])
    elif "transpose" in layer.kind:  # a generator: it begins with one pixel of noise
        walk.current = (walk.batch, channels, *(1,) * dims)
        return
    elif not walk.current:
        walk.current = (walk.batch, channels, *_assumed(layer, dims))
        shape = "x".join(map(str, walk.current[1:]))
        fix = "save torchinfo's summary with its input instead, or try rad-estimate --input"
        walk.assume(f"an input of {shape}; {fix}")
    walk.image = walk.current[2:]


def _assumed(layer: Layer, dims: int) -> Dims:
    """Return the sides of the input that a first convolution suggests; a video's has another size along time."""
    if dims == 1:
        return (SAMPLES,)
    if dims == 2:
        return (IMAGE_SIDE, IMAGE_SIDE)
    kernel, stride = sides(layer.args, "kernel_size", 3, 1), sides(layer.args, "stride", 3, 1)
    if kernel[0] != kernel[1] or stride[0] != stride[1]:
        return (FRAMES, IMAGE_SIDE, IMAGE_SIDE)
    return (VOLUME_SIDE,) * 3


def _within_input(walk: ShapeWalk, size: Dims) -> Dims:
    """Limit an upscaled size by the input: modules printed in sequence may run in parallel (U-Net)."""
    if len(walk.image) != len(size):
        return size
    return tuple(min(n, most) for n, most in zip(size, walk.image, strict=True))


def _with_channels(walk: ShapeWalk, channels: int, dims: int) -> Dims:
    """Return the image with this many channels that the layer reads: the last one, a branch, or a concatenation."""
    last = walk.current
    if len(last) == dims + 2:
        if last[1] == channels:
            return last
        return walk.latest(rank=dims + 2, channels=channels) or (walk.batch, channels, *last[2:])
    if len(last) == 3 and dims == 2:  # tokens back to an image
        side = max(math.isqrt(last[1]), 1)
        return (walk.batch, channels, side, side)
    side = round((last[-1] / channels) ** (1 / dims)) if len(last) == 2 else 1  # a vector made an image
    return (walk.batch, channels, *(side if channels * side**dims == last[-1] else 1,) * dims)


def pool(walk: ShapeWalk, layer: Layer) -> Step:
    """Infer a pooling layer.

    Args:
        walk: Shapes and layers so far.
        layer: The layer, with its arguments.
    """
    last = walk.current
    if len(last) < 3:
        return last, last, None
    dims = len(last) - 2
    if "adaptive" in layer.kind:
        size = sides(layer.args, "output_size", dims, integer(layer.args, "0", default=1))
        return last, (*last[:2], *(max(n, 1) for n in size)), None
    kernel = sides(layer.args, "kernel_size", dims, integer(layer.args, "0", default=2))
    stride = sides(layer.args, "stride", dims, kernel[0])
    padding = sides(layer.args, "padding", dims, 0)
    up = max(stride[0] - 1, 0) if layer.args.get("ceil_mode") is True else 0
    size = tuple(
        max((n + 2 * p - k + up) // max(s, 1) + 1, 1)
        for n, p, k, s in zip(last[2:], padding, kernel, stride, strict=True)
    )
    return last, (*last[:2], *size), None


def plain(walk: ShapeWalk, layer: Layer) -> Step:
    """Infer upsampling; other layers here keep nothing.

    Args:
        walk: Shapes and layers so far.
        layer: The layer, with its arguments.
    """
    factor = layer.args.get("scale_factor")
    if layer.kind.startswith("upsampl") and isinstance(factor, (int, float)) and len(walk.current) > 2:
        size = _within_input(walk, tuple(max(int(n * factor), 1) for n in walk.current[2:]))
        return walk.current, (*walk.current[:2], *size), None
    return walk.same()


def batchnorm(walk: ShapeWalk, layer: Layer) -> Step:
    """Infer a norm over channels.

    Args:
        walk: Shapes and layers so far.
        layer: The layer, with its arguments.
    """
    channels = integer(layer.args, "num_features", default=0)
    along_tokens = len(walk.current) == 3 and walk.current[2] == channels
    if channels and len(walk.current) > 2 and walk.current[1] != channels and not along_tokens:
        shape = (walk.current[0], channels, *walk.current[2:])
        return shape, shape, None
    return walk.same()
