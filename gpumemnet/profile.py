"""The compact thing that travels: a model and its training setup as a few dozen numbers.

The account of every layer is taken where the summary is, on the user's side; what is left fits in a job's comment,
and an estimate from it takes microseconds.
"""

from __future__ import annotations

import string
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from gpumemnet.errors import SummaryError
from gpumemnet.training import OPTIMIZERS, PRECISIONS, Optimizer, Precision, TrainingSetup

Family = Literal["cnn", "transformer", "mlp", "other"]
FAMILIES: tuple[Family, ...] = get_args(Family)
UNTOLD_PERCENT = 6400
"""Layers guessed to be hidden that had to be stretched this much: the text tells next to nothing of the model."""
FORMATS = ("torchsummary", "torchinfo", "module_repr", "keras", "trace")

VERSION = "p2"
"""Changes with any change of fields or of their meaning: a stamp of another version is not understood."""
MAX_TEXT = 600
"""It shares a job's comment of at most 1,024 characters with the user's own text."""
MAX_NUMBER = 1 << 52
_ALPHABET = string.digits + string.ascii_lowercase
_CODES: dict[str, tuple[str, ...]] = {
    "family": FAMILIES,
    "source": FORMATS,
    "optimizer": OPTIMIZERS,
    "precision": PRECISIONS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """One training job, without its layers.

    All byte counts are of one process (one GPU) of the job.

    Attributes:
        family: Kind of network.
        source: Format of the summary it came from, or "trace".
        optimizer: As in TrainingSetup.
        precision: As in TrainingSetup.
        gradient_checkpointing: 1 if activations are recomputed.
        gpus: Processes of a data-parallel job.
        batch_size: Samples per step and process.
        seq_len: Tokens per sample; 0 if the model has none.
        parameters: Number of parameters.
        parameter_bytes: Weights and buffers.
        gradient_bytes: One gradient per trainable weight.
        optimizer_bytes: Optimizer states kept for good.
        step_bytes: Temporaries of an optimizer step at their peak.
        cast_bytes: 16-bit copies of weights that autocast keeps.
        input_bytes: The batch.
        output_bytes: The model's output (logits).
        output_sum_bytes: Outputs of all layers (Horus' activations).
        saved_bytes: Activations kept for backward, all of them.
        saved_conv_bytes: Of these, kept by convolutions.
        saved_linear_bytes: By linear layers.
        saved_norm_bytes: By normalisations.
        saved_activation_bytes: By activation functions.
        saved_attention_bytes: By attention between its projections.
        saved_mask_bytes: Masks and indices.
        score_bytes: Attention scores, if attention is not fused.
        doubt_bytes: Attention scores more, if attention that the text does not tell of is not fused.
        hidden_bytes: Tensors of layers that the text hides, as guessed.
        hidden_factor: By how much that guess had to be stretched to agree with the text's totals, times 100.
        borrowed_bytes: The largest workspace of one convolution.
        fourier_bytes: The largest that a convolution by Fourier transform would take.
        loose_bytes: Weights that no layer of the text owns, so that nobody knows what they do.
        largest_bytes: The largest tensor.
        largest_conv_bytes: The largest input plus output of one convolution.
        largest_linear_bytes: The largest input plus output of one linear layer.
        largest_weight_bytes: The largest weight.
        forward_end_bytes: Allocated when the forward pass is over, from the replay.
        allocated_bytes: Peak allocated, from the replay.
        reserved_bytes: Peak reserved, from the replay.
        tensors: Tensors made by one forward pass.
        weights: Parameter tensors.
        convs: Convolutions.
        grouped_convs: Of these, grouped or depthwise.
        linears: Linear layers.
        norms: Normalisations.
        activations: Activation functions.
        attentions: Attention operations.
        embeddings: Embeddings.
        recurrents: Recurrent layers.
        guessed: Operations or shapes that the text does not show.
        idle: Layers that do nothing (Identity), by which published vision models differ from home-made ones.
        assumed: 1 if the size of the pictures is assumed.
        unknown: Layers of unknown kinds.
    """

    family: Family
    source: str
    optimizer: Optimizer
    precision: Precision
    gradient_checkpointing: int
    gpus: int
    batch_size: int
    seq_len: int
    parameters: int
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    step_bytes: int
    cast_bytes: int
    input_bytes: int
    output_bytes: int
    output_sum_bytes: int
    saved_bytes: int
    saved_conv_bytes: int
    saved_linear_bytes: int
    saved_norm_bytes: int
    saved_activation_bytes: int
    saved_attention_bytes: int
    saved_mask_bytes: int
    score_bytes: int
    doubt_bytes: int
    hidden_bytes: int
    hidden_factor: int
    borrowed_bytes: int
    fourier_bytes: int
    loose_bytes: int
    largest_bytes: int
    largest_conv_bytes: int
    largest_linear_bytes: int
    largest_weight_bytes: int
    forward_end_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    tensors: int
    weights: int
    convs: int
    grouped_convs: int
    linears: int
    norms: int
    activations: int
    attentions: int
    embeddings: int
    recurrents: int
    guessed: int
    idle: int
    assumed: int
    unknown: int

    def to_text(self) -> str:
        """Write the profile as at most 600 characters of [A-Za-z0-9._~-]."""
        words = [VERSION]
        for name in _NAMES:
            value = getattr(self, name)
            words.append(_base36(_CODES[name].index(value) if name in _CODES else value))
        return ".".join(words)

    @classmethod
    def from_text(cls, text: str) -> ModelProfile:
        """Read what `to_text` wrote.

        Args:
            text: Any text at all; it comes from a field that the user can edit.

        Returns:
            The profile.

        Raises:
            SummaryError: The text is not a profile of this version.
        """
        words = text.split(".") if len(text) <= MAX_TEXT and text.isascii() else []
        if len(words) != len(_NAMES) + 1 or words[0] != VERSION:
            raise _broken(f"it is not a profile of version {VERSION}")
        values: dict[str, Any] = {}
        for name, word in zip(_NAMES, words[1:], strict=True):
            if not 0 < len(word) <= 11 or word.strip(_ALPHABET):
                raise _broken(f"{name} is not a number")
            number = int(word, 36)
            if name in _CODES:
                if number >= len(_CODES[name]):
                    raise _broken(f"{name} is unknown")
                values[name] = _CODES[name][number]
            elif number > MAX_NUMBER:
                raise _broken(f"{name} is too large")
            else:
                values[name] = number
        if not values["batch_size"] or not values["gpus"] or not values["reserved_bytes"]:
            raise _broken("it describes no training")
        return cls(**values)

    @property
    def key(self) -> str:
        """A short hash that is the same for the same model trained in the same way."""
        import hashlib  # a millisecond or two that `rad-estimate` need not spend

        return hashlib.sha256(self.to_text().encode()).hexdigest()[:16]


_NAMES = tuple(field.name for field in fields(ModelProfile))


def _base36(number: int) -> str:
    digits = ""
    while number > 0:
        number, digit = divmod(number, 36)
        digits = _ALPHABET[digit] + digits
    return digits or "0"


def _broken(problem: str) -> SummaryError:
    return SummaryError(path="profile", problem=problem, fix="submit the job again")


def profile_summary(path_or_text: str, setup: TrainingSetup) -> ModelProfile:
    """Profile a model summary.

    Args:
        path_or_text: A file's path, or the text itself (told by a line break in it).
        setup: How the model is trained.

    Returns:
        The profile.

    Raises:
        SummaryError: The file or the text is unusable.
        SetupError: The setup is impossible for this model.
    """
    from gpumemnet.account import profile_with_warnings

    return profile_with_warnings(path_or_text, setup)[0]
