"""How a model is trained: the settings that, with the model, decide the memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Optimizer = Literal["sgd", "sgd-momentum", "adam", "adamw", "rmsprop", "adafactor"]
Precision = Literal["fp32", "tf32", "amp", "bf16"]

OPTIMIZERS: tuple[Optimizer, ...] = ("sgd", "sgd-momentum", "adam", "adamw", "rmsprop", "adafactor")
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "amp", "bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """One training configuration.

    Attributes:
        batch_size: Samples per step and process; None if the user left it to the summary's own shapes.
        seq_len: Tokens per sample, for models whose summary does not show it; None otherwise.
        optimizer: As named by `--optimizer`.
        precision: fp32 and tf32 keep 4-byte tensors; amp is autocast to 16 bits with 4-byte weights; bf16 is a
            model whose parameters are themselves bfloat16.
        gradient_checkpointing: Activations of repeated blocks are recomputed in backward, not saved.
        input_shape: Shape of the model's input, batch first, for a text that shows no shapes; None otherwise.
        gpus: Processes of a data-parallel job; each holds a whole copy (DDP).
    """

    batch_size: int | None = None
    seq_len: int | None = None
    optimizer: Optimizer = "adam"
    precision: Precision = "fp32"
    gradient_checkpointing: bool = False
    gpus: int = 1
    input_shape: tuple[int, ...] | None = None
