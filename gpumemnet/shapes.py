"""Shapes for a text that shows none: follow one batch through the arguments that `print(model)` gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpumemnet import image_shapes, kinds, token_shapes
from gpumemnet.arrange import arrange
from gpumemnet.errors import SetupError
from gpumemnet.parse.arguments import integer
from gpumemnet.summary import Layer, ModelSummary
from gpumemnet.tied import root_class
from gpumemnet.training import TrainingSetup

MAX_TOKENS = 512
"""Assumed sequence length where neither the user nor the positions' table says one."""

Step = tuple[tuple[int, ...], tuple[int, ...], int | None]
"""What one layer reads, what it makes (empty if nothing goes on from it), and its parameters if they turn out here."""


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
    walk = Walk(summary, setup)
    layers = tuple(walk.layer(layer) for layer in arrange(summary.layers))
    return replace(
        summary, layers=layers, batch_size=setup.batch_size, warnings=(*summary.warnings, *walk.warnings)
    )


class Walk:
    """Where the batch is, and what shapes it had lately."""

    def __init__(self, summary: ModelSummary, setup: TrainingSetup) -> None:
        assert setup.batch_size
        self.batch = setup.batch_size
        self.warnings: list[str] = []
        self.root = root_class(summary)
        self.current: tuple[int, ...] = ()
        self.recent: list[tuple[int, ...]] = []
        self.picture: tuple[int, ...] = ()
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
            if kinds.group_of(layer.kind) == "embedding" and token_shapes.POSITIONS.search(layer.name):
                length = min(integer(layer.args, "num_embeddings"), MAX_TOKENS)
                self.assume(f"sequence length {length}: add seq_len=N")
                return max(length, 1)
        if any(kinds.group_of(layer.kind) == "embedding" for layer in summary.layers):
            self.assume(f"sequence length {MAX_TOKENS}: add seq_len=N")
        return MAX_TOKENS

    def assume(self, what: str) -> None:
        """Warn of an assumption."""
        self.warnings.append(f"the text shows no shapes; assumed {what}")

    def layer(self, layer: Layer) -> Layer:
        """Give one layer its shapes and move on."""
        group = kinds.group_of(layer.kind)
        if layer.kind == "parameter":
            return layer
        step = _STEPS.get(group)
        ins, outs, params = step(self, layer) if step else self.same()
        if not outs:
            return layer if params is None else replace(layer, params=params, param_shapes=())
        if not (group == "embedding" and outs[0] == 1 and self.current):  # positions are added to the words
            self.current = outs
            self.recent.append(outs)
        found = replace(layer, input_shapes=(ins,), output_shapes=(outs,))
        return found if params is None else replace(found, params=params, param_shapes=())

    def same(self) -> Step:
        """A layer that changes no shape."""
        return self.current, self.current, None


_STEPS: dict[str, Callable[[Walk, Layer], Step]] = {
    "conv": image_shapes.conv,
    "pool": image_shapes.pool,
    "plain": image_shapes.plain,
    "batchnorm": image_shapes.batchnorm,
    "layernorm": token_shapes.layernorm,
    "embedding": token_shapes.embedding,
    "linear": token_shapes.linear,
    "attention": token_shapes.attention,
    "rnn": token_shapes.rnn,
}
"""By group of kinds; the others change no shape."""
