"""Shapes for a text that shows none: follow one batch through the arguments that `print(model)` gives."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from gpumemnet import kinds
from gpumemnet.arrange import arrange
from gpumemnet.errors import SetupError
from gpumemnet.parse.arguments import integer, sides
from gpumemnet.summary import Layer, ModelSummary
from gpumemnet.tied import root_class
from gpumemnet.training import TrainingSetup

IMAGE_SIDE = 224
"""Assumed picture size: what most published vision models train on."""
MAX_TOKENS = 512
"""Assumed sequence length where neither the user nor the positions' table says one."""
_POSITIONS = re.compile(r"pos|wpe", re.IGNORECASE)
_POOLED = re.compile(r"pooler|pooled|classifier|heads?$|summary|score", re.IGNORECASE)


def infer(summary: ModelSummary, setup: TrainingSetup) -> ModelSummary:
    """Give every layer shapes, in running order.

    Args:
        summary: Layers with arguments and no shapes.
        setup: Batch size, sequence length or input shape.

    Returns:
        The summary with concrete shapes; warnings say what was assumed.

    Raises:
        SetupError: The batch size is not known.
    """
    if not setup.batch_size:
        raise SetupError("the text shows no shapes; add batch_size=N")
    walk = _Walk(summary, setup)
    layers = tuple(walk.layer(layer) for layer in arrange(summary.layers))
    return replace(
        summary, layers=layers, batch_size=setup.batch_size, warnings=(*summary.warnings, *walk.warnings)
    )


class _Walk:
    """Where the batch is, and what shapes it had lately."""

    def __init__(self, summary: ModelSummary, setup: TrainingSetup) -> None:
        assert setup.batch_size
        self.batch = setup.batch_size
        self.warnings: list[str] = []
        self.root = root_class(summary)
        self.current: tuple[int, ...] = ()
        self.recent: list[tuple[int, ...]] = []
        self.given = setup.input_shape
        self.embedding: tuple[int, int] | None = None
        self.seq_len = setup.seq_len or self._sequence(summary)
        groups = [kinds.group_of(layer.kind) for layer in summary.layers]
        # Tables looked up by category, not by token: no layer that works on sequences.
        self.categories = setup.seq_len is None and not {"attention", "rnn", "layernorm", "conv"} & set(
            groups
        )

    def _sequence(self, summary: ModelSummary) -> int:
        for layer in summary.layers:
            if kinds.group_of(layer.kind) == "embedding" and _POSITIONS.search(layer.name):
                length = min(integer(layer.args, "num_embeddings"), MAX_TOKENS)
                self._assume(f"sequence length {length}: add seq_len=N")
                return max(length, 1)
        if any(kinds.group_of(layer.kind) == "embedding" for layer in summary.layers):
            self._assume(f"sequence length {MAX_TOKENS}: add seq_len=N")
        return MAX_TOKENS

    def _assume(self, what: str) -> None:
        self.warnings.append(f"the text shows no shapes; assumed {what}")

    def layer(self, layer: Layer) -> Layer:
        """Give one layer its shapes and move on."""
        group = kinds.group_of(layer.kind)
        if layer.kind == "parameter":
            return layer
        step = getattr(self, f"_{group}", self._same)
        ins, outs, params = step(layer)
        if not outs:
            return layer if params is None else replace(layer, params=params, param_shapes=())
        if not (group == "embedding" and outs[0] == 1 and self.current):  # positions are added to the words
            self.current = outs
            self.recent.append(outs)
        found = replace(layer, input_shapes=(ins,), output_shapes=(outs,))
        return found if params is None else replace(found, params=params, param_shapes=())

    def _same(self, _: Layer) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
        return self.current, self.current, None

    _unknown = _activation = _dropout = _view = _same

    def _start_image(self, channels: int, dims: int) -> None:
        if self.given and len(self.given) == dims + 2:
            self.current = (self.batch, *self.given[1:])
        elif not self.current:
            side = IMAGE_SIDE if dims == 2 else 32 if dims == 3 else 16000
            self.current = (self.batch, channels, *(side,) * dims)
            self._assume(f"an input of {'x'.join(map(str, self.current[1:]))}: add --input")

    def _conv(self, layer: Layer) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
        dims = next((int(letter) for letter in layer.kind if letter.isdigit()), 2)
        channels, outs = (
            integer(layer.args, "in_channels", default=3),
            integer(layer.args, "out_channels", default=1),
        )
        if not self.current:
            self._start_image(channels, dims)
        source = self._with_channels(channels, dims)
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
                (n - 1) * s - 2 * p + k
                for n, s, p, k in zip(source[2:], stride, padding, kernel, strict=True)
            )
        else:
            size = tuple(
                (n + 2 * p - d * (k - 1) - 1) // max(s, 1) + 1
                for n, p, d, k, s in zip(source[2:], padding, dilation, kernel, stride, strict=True)
            )
        return source, (self.batch, outs, *(max(n, 1) for n in size)), None

    def _with_channels(self, channels: int, dims: int) -> tuple[int, ...]:
        """The picture with this many channels that the layer reads: the last one, a branch, or a concatenation."""
        last = self.current
        if len(last) == dims + 2:
            if last[1] == channels:
                return last
            near = (
                shape
                for shape in reversed(self.recent[-40:])
                if len(shape) == dims + 2 and shape[1] == channels
            )
            return next(near, (self.batch, channels, *last[2:]))
        if len(last) == 3 and dims == 2:  # tokens back to a picture
            side = max(math.isqrt(last[1]), 1)
            return (self.batch, channels, side, side)
        return (self.batch, channels, *(1,) * dims)

    def _pool(self, layer: Layer) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
        last = self.current
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

    def _plain(self, layer: Layer) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
        factor = layer.args.get("scale_factor")
        if layer.kind.startswith("upsampl") and isinstance(factor, (int, float)) and len(self.current) > 2:
            return (
                self.current,
                (*self.current[:2], *(max(int(n * factor), 1) for n in self.current[2:])),
                None,
            )
        return self._same(layer)

    def _batchnorm(self, layer: Layer) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
        channels = integer(layer.args, "num_features", default=0)
        if channels and len(self.current) > 2 and self.current[1] != channels:
            shape = (self.current[0], channels, *self.current[2:])
            return shape, shape, None
        return self._same(layer)

    def _layernorm(self, layer: Layer) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
        size = layer.args.get("0")
        width = size[-1] if isinstance(size, tuple) and size else 0
        if len(self.current) == 4 and width == self.current[1] and not layer.kind.endswith("2d"):
            tokens = math.prod(self.current[2:])
            shape = (
                self.current
                if "convnext" in layer.kind or self._in_convnext(layer)
                else (self.batch, tokens, width)
            )
            return shape, shape, None
        if (
            width
            and self.current
            and self.current[-1] != width
            and width % max(self.current[-1], 1) == 0
            and len(self.current) == 3
        ):
            merged = width // max(self.current[-1], 1)  # patch merging joins neighbours
            shape = (self.current[0], max(self.current[1] // merged, 1), width)
            return shape, shape, None
        return self._same(layer)

    def _in_convnext(self, layer: Layer) -> bool:
        return any("convnext" in cls.lower() or "cnblock" in cls.lower() for cls, _ in layer.path)

    def _embedding(self, layer: Layer) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
        rows, width = integer(layer.args, "num_embeddings"), max(integer(layer.args, "embedding_dim"), 1)
        if "relative" in layer.name and width < 64:
            return (), (), None
        if _POSITIONS.search(layer.name):
            return (1, self.seq_len), (1, self.seq_len, width), None
        if layer.name == "shared":  # encoder and decoder show it again where they use it
            self.embedding = self.embedding or (rows, width)
            return (), (), None
        self.embedding = self.embedding or (rows, width)
        if self.categories:
            return (self.batch,), (self.batch, width), None
        return (self.batch, self.seq_len), (self.batch, self.seq_len, width), None

    def _linear(self, layer: Layer) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
        ins, outs = (
            integer(layer.args, "in_features", "nx", default=1),
            integer(layer.args, "out_features", "nf", default=1),
        )
        if not layer.args and layer.params and self.current:  # transformers' Conv1D() once printed no sizes
            ins = self.current[-1]
            outs = max(layer.params // (ins + 1), 1)
        if not self.current:
            self.current = (self.batch, *self.given[1:]) if self.given else (self.batch, ins)
        source = self._for_linear(layer, ins)
        return source, (*source[:-1], outs), None

    def _for_linear(self, layer: Layer, ins: int) -> tuple[int, ...]:
        last = self.current
        name = layer.path[-1][1] if layer.path else ""
        pooled = _POOLED.search(layer.name) or _POOLED.search(name)
        words = self.embedding == (integer(layer.args, "out_features"), ins)
        per_token = words or "TokenClassification" in self.root or "QuestionAnswering" in self.root
        if len(last) == 3 and last[-1] == ins and pooled and not per_token:
            return (self.batch, ins)
        if last[-1] == ins and len(last) != 4:
            return last
        if len(last) == 4:
            if last[1] == ins and self._in_convnext(layer) and not pooled:
                return (last[0], *last[2:], ins)
            if last[-1] == ins and last[1] != ins:
                return last
            if last[1] == ins and math.prod(last[2:]) > 1 and not pooled and self._is_token_model():
                return (self.batch, math.prod(last[2:]), ins)
            return (self.batch, ins)  # flattened, or averaged over all positions
        if (
            len(last) == 3
            and ins % max(last[-1], 1) == 0
            and ins != last[-1]
            and ins // max(last[-1], 1) in (2, 4)
            and "erg" in name + str(layer.path[-1:])
        ):
            return (last[0], max(last[1] * last[-1] // ins, 1), ins)
        near = (shape for shape in reversed(self.recent[-40:]) if shape[-1] == ins and len(shape) < 4)
        found = next(near, None)
        return found or (*last[:-1], ins)

    def _is_token_model(self) -> bool:
        return self.embedding is not None or "rans" in self.root or "iT" in self.root or "Mixer" in self.root

    def _attention(self, layer: Layer) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
        width = integer(layer.args, "embed_dim")
        shape: tuple[int, ...]
        if len(self.current) == 4 and width:
            shape = (self.batch, math.prod(self.current[2:]) + 1, width)
        elif width:
            shape = (
                (*self.current[:-1], width) if len(self.current) == 3 else (self.batch, self.seq_len, width)
            )
        else:
            shape = self.current
        return shape, shape, None

    def _rnn(self, layer: Layer) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
        size, hidden = (
            integer(layer.args, "input_size", default=1),
            integer(layer.args, "hidden_size", default=1),
        )
        source = self.current if len(self.current) == 3 else (self.batch, self.seq_len, size)
        directions = 2 if layer.args.get("bidirectional") is True else 1
        return source, (*source[:-1], hidden * directions), None
