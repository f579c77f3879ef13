"""Compare a summary with the user's settings: contradictions are refused, and possible mistakes reported."""

from __future__ import annotations

from gpumemnet.errors import SetupError
from gpumemnet.names import Group
from gpumemnet.summaries.texts import rows
from gpumemnet.summaries.texts.records import ModelSummary, Shape
from gpumemnet.training import TrainingSetup

_LEAST_ROWS = 2
"""Number of layers that must agree that the batch is their second dimension."""


def check(summary: ModelSummary, setup: TrainingSetup, *, path: str) -> tuple[str, ...]:
    """Compare the shapes of a text with the setup.

    Args:
        summary: The parsed text.
        setup: The training setup.
        path: File, for messages.

    Returns:
        One sentence for each setting that the text can neither confirm nor refute.

    Raises:
        SetupError: Text and setup contradict each other.
    """
    return (*_check_tokens(summary, setup, path), *_check_batch(summary, setup, path))


def _check_tokens(summary: ModelSummary, setup: TrainingSetup, path: str) -> tuple[str, ...]:
    """Check that shapes [batch, tokens, width] have the user's number of tokens: embeddings', else any at all."""
    if not setup.seq_len:
        return ()
    fix = f"print it with inputs of {setup.seq_len} tokens, or remove seq_len"
    embedded = {
        shape[1]
        for layer in rows.of_group(summary.layers, Group.EMBEDDING)
        for shape in layer.output_shapes
        if len(shape) == 3 and shape[1]
    }
    if embedded and setup.seq_len not in embedded:
        tokens = " or ".join(map(str, sorted(token for token in embedded if token)))
        raise SetupError(f"{path}: it shows {tokens} tokens and seq_len={setup.seq_len} was given; {fix}")
    shapes = _shapes(summary)
    looked_at = 3 if rows.of_group(summary.layers, Group.CONV) else 2  # convolutions run along the last
    sizes = {size for shape in shapes if len(shape) == 3 for size in shape[:looked_at]}
    if sizes and setup.seq_len not in sizes:
        raise SetupError(f"{path}: none of its shapes has the {setup.seq_len} tokens of seq_len; {fix}")
    if shapes and not sizes:
        return (f"seq_len={setup.seq_len} changes nothing: the shapes show no tokens",)
    return ()


def _check_batch(summary: ModelSummary, setup: TrainingSetup, path: str) -> tuple[str, ...]:
    """Check that shapes [tokens, batch, width] are not scaled as if the batch came first."""
    if not setup.batch_size or not summary.batch_size or setup.batch_size == summary.batch_size:
        return ()
    shapes = [shape for layer in summary.layers for shape in layer.output_shapes]
    if any(len(shape) > 3 for shape in shapes):
        return ()
    shown = [shape for shape in shapes if len(shape) == 3 and shape[0] == summary.batch_size]
    if len(shown) < _LEAST_ROWS:
        return ()
    if setup.seq_len != setup.batch_size and all(shape[1] == setup.batch_size for shape in shown):
        raise SetupError(
            f"{path}: batch_size={setup.batch_size} is the second dimension of its shapes, as in "
            f"{list(shown[0])}; remove batch_size, or add seq_len={setup.batch_size} if those are its tokens"
        )
    first, second = shown[0][:2]
    if first and second and first > second and _batch_may_be_second(summary):
        return (
            f"takes {first} for the batch of shapes like {list(shown[0])}, and scales by it; if {second} is, print the "
            "model with batch_first=True",
        )
    return ()


def _batch_may_be_second(summary: ModelSummary) -> bool:
    """Return whether layers with the option batch_first run, without evidence of its value at the end."""
    last = next((layer for layer in reversed(summary.layers) if layer.runs and layer.output_shapes), None)
    return (
        last is not None
        and len(last.output_shapes[0]) == 3
        and not rows.of_group(summary.layers, Group.EMBEDDING)
        and any(rows.of_group(summary.layers, group) for group in (Group.ATTENTION, Group.RNN))
    )


def _shapes(summary: ModelSummary) -> list[Shape]:
    return [shape for layer in summary.layers for shape in (*layer.input_shapes, *layer.output_shapes)]
