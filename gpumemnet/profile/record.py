"""The compact form of a job: a model and its training setup as a few dozen numbers.

Layers are read on the user's side, where the summary is; the profile fits in a job's comment, and an estimate from it
takes microseconds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gpumemnet.errors import SummaryError
from gpumemnet.names import (
    FAMILIES,
    OPTIMIZERS,
    PRECISIONS,
    SOURCES,
    Family,
    Optimizer,
    Precision,
    Source,
    StrEnum,
)

VERSION = "p4"
"""Changes with any change of fields or of their meaning; profiles of other versions are rejected."""
MAX_TEXT = 600
"""Maximum length: it shares a job's comment of at most 1,024 characters with the user's text."""
MAX_NUMBER = 1 << 52
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
WORDS: dict[str, tuple[StrEnum, ...]] = {
    "family": FAMILIES,
    "source": SOURCES,
    "optimizer": OPTIMIZERS,
    "precision": PRECISIONS,
}
"""Fields with named values, and all values in the order of their codes."""


class ModelProfile(NamedTuple):
    """One training job, without its layers.

    All byte counts are of one process (one GPU) of the job.
    """

    family: Family
    """Kind of network."""
    source: Source
    """Format of the summary it came from, or "trace"."""
    optimizer: Optimizer
    """As in TrainingSetup."""
    precision: Precision
    """As in TrainingSetup."""
    gradient_checkpointing: int
    """1 if activations are recomputed."""
    gpus: int
    """Processes of a data-parallel job."""
    batch_size: int
    """Samples per step and process."""
    seq_len: int
    """Tokens per sample; 0 if the model has none."""
    parameters: int
    """Number of parameters."""
    parameter_bytes: int
    """Weights and buffers."""
    gradient_bytes: int
    """One gradient per trainable weight."""
    optimizer_bytes: int
    """Optimizer states, which are permanent."""
    step_bytes: int
    """Peak of the temporaries of an optimizer step."""
    cast_bytes: int
    """16-bit copies of weights that autocast keeps."""
    input_bytes: int
    """The batch."""
    output_bytes: int
    """The model's output (logits)."""
    output_sum_bytes: int
    """Outputs of all layers (Horus' activations)."""
    saved_bytes: int
    """All activations saved for backward."""
    saved_conv_bytes: int
    """Of these, saved by convolutions."""
    saved_linear_bytes: int
    """By linear layers."""
    saved_norm_bytes: int
    """By normalizations."""
    saved_activation_bytes: int
    """By activation functions."""
    saved_attention_bytes: int
    """By attention between its projections."""
    saved_mask_bytes: int
    """Masks and indices."""
    score_bytes: int
    """Attention scores, if attention is not fused."""
    doubt_bytes: int
    """Extra score bytes if attention assumed fused is not; of a trace, what its kinds of doubt add to the bound."""
    hidden_bytes: int
    """Tensors of layers that the text hides, as guessed."""
    hidden_factor: int
    """Factor that scales that guess to the text's totals, times 100."""
    borrowed_bytes: int
    """The largest workspace of one convolution."""
    fourier_bytes: int
    """The largest workspace that a convolution by Fourier transform would need."""
    loose_bytes: int
    """Bytes of parameters not attributed to any listed layer."""
    largest_bytes: int
    """The largest tensor."""
    largest_conv_bytes: int
    """The largest input plus output of one convolution."""
    largest_linear_bytes: int
    """The largest input plus output of one linear layer."""
    largest_weight_bytes: int
    """The largest weight."""
    forward_end_bytes: int
    """Allocated at the end of the forward pass, from the replay."""
    allocated_bytes: int
    """Peak allocated, from the replay."""
    reserved_bytes: int
    """Peak reserved, from the replay."""
    tensors: int
    """Tensors made by one forward pass."""
    weights: int
    """Parameter tensors."""
    convs: int
    """Convolutions."""
    grouped_convs: int
    """Of these, grouped or depthwise."""
    linears: int
    """Linear layers."""
    norms: int
    """Normalizations."""
    activations: int
    """Activation functions."""
    attentions: int
    """Attention operations."""
    embeddings: int
    """Embeddings."""
    recurrents: int
    """Recurrent layers."""
    guessed: int
    """Operations or shapes that the text does not show."""
    idle: int
    """Identity layers, which published vision models have and custom ones do not."""
    assumed: int
    """1 if the size of the input images is assumed."""
    unknown: int
    """Layers of unknown kinds."""
    mega_mult_adds: int
    """Millions of multiply-adds in one forward pass: convolutions, linear and recurrent layers, attention."""
    benchmark: int = 0
    """1 if cuDNN tries its algorithms for convolutions (`torch.backends.cudnn.benchmark`)."""
    nccl_alone: int = 0
    """1 if a process group of a single rank uses NCCL."""

    def to_text(self) -> str:
        """Write the profile as at most 600 characters of [A-Za-z0-9._~-]."""
        words = [VERSION]
        for name in _NAMES:
            value = getattr(self, name)
            words.append(_base36(WORDS[name].index(value) if name in WORDS else value))
        return ".".join(words)

    @classmethod
    def from_text(cls, text: str) -> ModelProfile:
        """Parse the output of `to_text`.

        Args:
            text: Any text; it comes from a field that the user can edit.

        Returns:
            The profile.

        Raises:
            SummaryError: The text is not a profile of this version.
        """
        words = text.split(".") if len(text) <= MAX_TEXT and text.isascii() else []
        if len(words) != len(_NAMES) + 1 or words[0] != VERSION:
            raise _broken(f"it is not a profile of version {VERSION}")
        values: dict[str, Any] = {}
        for name, word in zip(_NAMES, words[1:]):
            if not 0 < len(word) <= 11 or word.strip(_ALPHABET):
                raise _broken(f"{name} is not a number")
            number = int(word, 36)
            if name in WORDS:
                if number >= len(WORDS[name]):
                    raise _broken(f"{name} is unknown")
                values[name] = WORDS[name][number]
            elif number > MAX_NUMBER:
                raise _broken(f"{name} is too large")
            else:
                values[name] = number
        if not values["batch_size"] or not values["gpus"] or not values["reserved_bytes"]:
            raise _broken("it describes no training")
        return cls(**values)

    @property
    def key(self) -> str:
        """A short hash, equal for the same model trained in the same way."""
        import hashlib  # saves `rad-estimate` a millisecond or two

        return hashlib.sha256(self.to_text().encode()).hexdigest()[:16]

    @property
    def model(self) -> str:
        """Key of a model, however it is trained: its number of parameters, and the kinds of its layers."""
        counts = (
            self.parameters,
            self.weights,
            self.convs,
            self.linears,
            self.norms,
            self.embeddings,
            self.recurrents,
        )
        return "-".join(map(str, counts))


_NAMES = ModelProfile._fields


def _base36(number: int) -> str:
    digits = ""
    while number > 0:
        number, digit = divmod(number, 36)
        digits = _ALPHABET[digit] + digits
    return digits or "0"


def _broken(problem: str) -> SummaryError:
    return SummaryError(path="profile", problem=problem, fix="submit the job again")
