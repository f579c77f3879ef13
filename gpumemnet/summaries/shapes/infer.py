"""Infer shapes for a text that shows none, by following a batch through the arguments of `print(model)`."""

from __future__ import annotations

from collections.abc import Callable

from gpumemnet.errors import SetupError
from gpumemnet.names import Group
from gpumemnet.summaries.shapes import image, token
from gpumemnet.summaries.shapes.from_counts import with_arguments
from gpumemnet.summaries.shapes.run_order import arrange
from gpumemnet.summaries.shapes.walk import ShapeWalk, Step
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.records import Layer, ModelSummary
from gpumemnet.training import TrainingSetup

_STEPS: dict[str, Callable[[ShapeWalk, Layer], Step]] = {
    Group.CONV: image.conv,
    Group.POOL: image.pool,
    Group.PLAIN: image.plain,
    Group.BATCHNORM: image.batchnorm,
    Group.LAYERNORM: token.layernorm,
    Group.EMBEDDING: token.embedding,
    Group.LINEAR: token.linear,
    Group.ATTENTION: token.attention,
    Group.RNN: token.rnn,
}
"""By group of kinds; other groups change no shape."""


def infer(summary: ModelSummary, setup: TrainingSetup) -> ModelSummary:
    """Give every layer shapes, in running order.

    Args:
        summary: Layers with arguments and no shapes.
        setup: Batch size, sequence length or input shape.

    Returns:
        The summary with concrete shapes; warnings name the assumptions.

    Raises:
        SetupError: The batch size or the model's width is unknown.
    """
    if not setup.batch_size:
        raise SetupError("the text shows no shapes; add batch_size=N")
    shown = summary._replace(layers=tuple(with_arguments(summary.layers)))
    walk = ShapeWalk(shown, setup)
    layers = tuple(_shaped(walk, layer) for layer in arrange(shown.layers))
    return summary._replace(
        layers=layers, batch_size=setup.batch_size, warnings=(*summary.warnings, *walk.warnings)
    )


def _shaped(walk: ShapeWalk, layer: Layer) -> Layer:
    """Give a layer its shapes and advance."""
    if layer.kind == "parameter":
        return layer
    group = kinds.group_of(layer.kind)
    step = _STEPS.get(group)
    ins, outs, params = step(walk, layer) if step else walk.same()
    if not outs:
        return layer if params is None else layer._replace(params=params, param_shapes=())
    if not (group is Group.EMBEDDING and outs[0] == 1 and walk.current):  # positions are added to the words
        walk.go_on(outs)
    found = layer._replace(input_shapes=(ins,), output_shapes=(outs,))
    return found if params is None else found._replace(params=params, param_shapes=())
