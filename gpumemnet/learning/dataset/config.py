"""One training configuration of the dataset, as a frozen record that JSON can hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from gpumemnet.names import Optimizer, Precision

Implementation = Literal["default", "foreach", "fused", "forloop"]
"""How the optimizer processes parameters; "default" leaves the choice to PyTorch (foreach on a GPU)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """A model's input or target tensor, without its batch dimension.

    Attributes:
        kind: "float" (standard normal values) or "int" (indices below `high`).
        shape: Dimensions after the batch dimension.
        high: Exclusive upper limit of indices; 0 for floats.
    """

    kind: Literal["float", "int"]
    shape: tuple[int, ...]
    high: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One random model and its training.

    Attributes:
        seed: Seed of the whole dataset.
        index: Number of this model under that seed; (seed, index, variant) determines everything else.
        family: Module of gpumemnet.learning.dataset.models that builds it: "cnn", "transformer", ...
        style: Shape within the family: "residual", "encoder", ...
        arch: Arguments of the builder, plain JSON values.
        batch_size: Samples per step.
        variant: 0, or 1 for the same model and settings with a batch size from a wider spread.
        seq_len: Tokens per sample; None if samples are not sequences.
        optimizer: Value of `rad-estimate --optimizer`.
        implementation: How the optimizer processes parameters.
        precision: Value of `rad-estimate --precision`; "amp" is fp16 autocast with a gradient scaler.
        gradient_checkpointing: Whether each repeated block is recomputed in backward.
    """

    seed: int
    index: int
    family: str
    style: str
    arch: dict[str, Any]
    batch_size: int
    variant: int = 0
    seq_len: int | None = None
    optimizer: Optimizer = Optimizer.ADAM
    implementation: Implementation = "default"
    precision: Precision = Precision.FP32
    gradient_checkpointing: bool = False

    def __post_init__(self) -> None:
        """Convert plain names, as used in files."""
        object.__setattr__(self, "optimizer", Optimizer(self.optimizer))
        object.__setattr__(self, "precision", Precision(self.precision))

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Configuration:
        """Build the record from a mapping, which may hold additional keys."""
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})
