"""What a summary shows against what the user says: a contradiction is refused, never resolved in silence."""

from __future__ import annotations

from gpumemnet.errors import SetupError
from gpumemnet.names import Group
from gpumemnet.texts import rows
from gpumemnet.texts.records import ModelSummary
from gpumemnet.training import TrainingSetup

_LEAST_ROWS = 2
"""So many layers must agree that the batch is their second dimension."""


def check(summary: ModelSummary, setup: TrainingSetup, *, path: str) -> None:
    """Compare the shapes of a text with the setup.

    Args:
        summary: The parsed text.
        setup: How the model is trained.
        path: File, for messages.

    Raises:
        SetupError: They contradict each other.
    """
    _check_tokens(summary, setup, path)
    _check_batch(summary, setup, path)


def _check_tokens(summary: ModelSummary, setup: TrainingSetup, path: str) -> None:
    """Shapes [batch, tokens, width] that embeddings made must have as many tokens as the user says."""
    shown = {
        shape[1]
        for layer in rows.of_group(summary.layers, Group.EMBEDDING)
        for shape in layer.output_shapes
        if len(shape) == 3 and shape[1]
    }
    if setup.seq_len and shown and setup.seq_len not in shown:
        tokens = " or ".join(map(str, sorted(token for token in shown if token)))
        raise SetupError(
            f"{path}: it shows {tokens} tokens and seq_len={setup.seq_len} was given; "
            f"print it with inputs of {setup.seq_len} tokens, or leave seq_len away"
        )


def _check_batch(summary: ModelSummary, setup: TrainingSetup, path: str) -> None:
    """Shapes [tokens, batch, width] must not be scaled as if their first dimension were the batch."""
    if not setup.batch_size or not summary.batch_size or setup.batch_size == summary.batch_size:
        return
    shapes = [shape for layer in summary.layers for shape in layer.output_shapes]
    if any(len(shape) > 3 for shape in shapes):
        return
    shown = [shape for shape in shapes if len(shape) == 3 and shape[0] == summary.batch_size]
    if len(shown) >= _LEAST_ROWS and all(shape[1] == setup.batch_size for shape in shown):
        raise SetupError(
            f"{path}: batch_size={setup.batch_size} is the second dimension of its shapes, as in "
            f"{list(shown[0])}; leave batch_size away, or print it with a batch of {setup.batch_size} first"
        )
