"""Settings of a training that, with the model, determine its memory."""

from __future__ import annotations

from gpumemnet.errors import SetupError
from gpumemnet.names import Optimizer, Precision
from gpumemnet.records import field, frozen


@frozen
class TrainingSetup:
    """One training configuration.

    Attributes:
        batch_size: Samples per step and process; None to use the summary's shapes.
        seq_len: Tokens per sample, for models whose summary does not show them; None otherwise.
        optimizer: Value of `--optimizer`.
        precision: Value of `--precision`.
        gradient_checkpointing: Whether activations of repeated blocks are recomputed in backward, not saved.
        input_shape: Shape of the model's input, batch first, for a text that shows no shapes; None otherwise.
        gpus: Processes of a data-parallel job; each holds a whole copy (DDP).
        stated: Names of the settings above that the user stated: a saved profile must agree only with these.

    Raises:
        SetupError: Optimizer or precision is unknown.
    """

    batch_size: int | None = None
    seq_len: int | None = None
    optimizer: Optimizer = Optimizer.ADAM
    precision: Precision = Precision.FP32
    gradient_checkpointing: bool = False
    gpus: int = 1
    input_shape: tuple[int, ...] | None = None
    stated: frozenset[str] = field(default=frozenset(), compare=False)

    def __post_init__(self) -> None:
        """Convert plain names, as used in files and on the command line."""
        try:
            object.__setattr__(self, "optimizer", Optimizer(self.optimizer))
            object.__setattr__(self, "precision", Precision(self.precision))
        except ValueError as exc:
            raise SetupError(f"{exc}; known: {', '.join((*Optimizer, *Precision))}") from exc
