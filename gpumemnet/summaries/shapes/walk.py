"""State of shape inference: the last layers' outputs, and the assumptions made."""

from __future__ import annotations

import re

from gpumemnet.names import Group
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.arguments import integer
from gpumemnet.summaries.texts.records import ModelSummary
from gpumemnet.training import TrainingSetup

MAX_TOKENS = 512
"""Assumed sequence length if neither the user nor the table of positions gives one."""
POSITIONS = re.compile(r"pos|wpe", re.IGNORECASE)
"""Name pattern of an embedding of positions."""
LOOK_BACK = 40
"""Maximum distance in layers to the start of a branch."""

_ON_SEQUENCES = {Group.ATTENTION, Group.RNN, Group.LAYERNORM, Group.CONV}

Dims = tuple[int, ...]
"""A tensor shape, batch first, with the batch size applied."""

Step = tuple[Dims, Dims, int | None]
"""A layer's input, its output (empty if nothing reads it), and its parameters if they are inferred here."""


class ShapeWalk:
    """Follows a batch through the layers.

    Attributes:
        batch: Samples per step.
        seq_len: Tokens per sample, given or assumed.
        given: The input's shape if the user gave it.
        root: Class name of the model.
        current: Output shape of the last layer; empty before the first.
        recent: Output shapes so far, oldest first.
        image: Sides of the input image; empty if there is none.
        patches: Channels of the last convolution that cut an image or a video into patches; 0 before it.
        embedding: Rows and width of the first embedding of words; None before it.
        categories: Embeddings are indexed by category, not by token: no layer works on sequences.
        warnings: One sentence for each assumption.
    """

    def __init__(self, summary: ModelSummary, setup: TrainingSetup) -> None:
        assert setup.batch_size
        self.batch = setup.batch_size
        self.warnings: list[str] = []
        self.root = summary.root
        self.current: Dims = ()
        self.recent: list[Dims] = []
        self.image: Dims = ()
        self.patches = 0
        self.given = setup.input_shape
        self.embedding: tuple[int, int] | None = None
        self.seq_len = setup.seq_len or self._sequence(summary)
        groups = {kinds.group_of(layer.kind) for layer in summary.layers}
        self.categories = setup.seq_len is None and not _ON_SEQUENCES & groups

    def _sequence(self, summary: ModelSummary) -> int:
        embeddings = [layer for layer in summary.layers if kinds.group_of(layer.kind) is Group.EMBEDDING]
        positions = next((layer for layer in embeddings if POSITIONS.search(layer.name)), None)
        length = MAX_TOKENS
        if positions is not None:
            length = min(integer(positions.args, "num_embeddings") or MAX_TOKENS, MAX_TOKENS)
        if embeddings:
            self.assume(f"sequence length {length}: add seq_len=N (--seq-len N)")
        return max(length, 1)

    def assume(self, what: str) -> None:
        """Record a warning about an assumption."""
        self.warnings.append(f"the text shows no shapes; assumed {what}")

    def same(self) -> Step:
        """Return the step of a layer that changes no shape."""
        return self.current, self.current, None

    def latest(self, *, rank: int, channels: int) -> Dims | None:
        """Return the latest shape of this rank with this many channels (dimension 1); None if there is none.

        Args:
            rank: Number of dimensions.
            channels: Size of dimension 1.
        """
        near = self.recent[-LOOK_BACK:]
        return next((shape for shape in reversed(near) if len(shape) == rank and shape[1] == channels), None)

    def go_on(self, shape: Dims) -> None:
        """Make a layer's output shape the current one."""
        self.current = shape
        self.recent.append(shape)
