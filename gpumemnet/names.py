"""Enumerations shared by records, files and the command line: a typo fails where it is made.

Members equal their text, so that JSON, messages and profiles hold plain words.
"""

from __future__ import annotations

from enum import Enum


class StrEnum(str, Enum):
    """Replacement of `enum.StrEnum`, which Python 3.9 and 3.10 lack: users' environments are older than nodes."""

    __str__ = str.__str__


class Optimizer(StrEnum):
    """Value of `--optimizer`."""

    SGD = "sgd"
    SGD_MOMENTUM = "sgd-momentum"
    ADAM = "adam"
    ADAMW = "adamw"
    RMSPROP = "rmsprop"
    ADAFACTOR = "adafactor"


class Precision(StrEnum):
    """Value of `--precision`.

    FP32 and TF32 keep 4-byte tensors; AMP is autocast to 16 bits with 4-byte weights; BF16 is a model whose parameters
    are themselves bfloat16.
    """

    FP32 = "fp32"
    TF32 = "tf32"
    AMP = "amp"
    BF16 = "bf16"


class Family(StrEnum):
    """Kind of network."""

    CNN = "cnn"
    TRANSFORMER = "transformer"
    MLP = "mlp"
    OTHER = "other"


class Source(StrEnum):
    """Source of a profile: the format of a summary, or a trace."""

    TORCHSUMMARY = "torchsummary"
    TORCHINFO = "torchinfo"
    MODULE_REPR = "module_repr"
    KERAS = "keras"
    TRACE = "trace"


class Policy(StrEnum):
    """Requested placement of a job."""

    EXCLUSIVE = "exclusive"
    COLLOCATE = "collocate"


class MpsServer(StrEnum):
    """Requested MPS server of a job: OWN is shared with no other job."""

    OWN = "own"


class Group(StrEnum):
    """Family of layer kinds that are treated alike; FUNCTION and LOSS are operations that no row shows."""

    CONV = "conv"
    LINEAR = "linear"
    BATCHNORM = "batchnorm"
    LAYERNORM = "layernorm"
    ACTIVATION = "activation"
    DROPOUT = "dropout"
    POOL = "pool"
    EMBEDDING = "embedding"
    RNN = "rnn"
    ATTENTION = "attention"
    VIEW = "view"
    PLAIN = "plain"
    UNKNOWN = "unknown"
    FUNCTION = "function"
    LOSS = "loss"


class ConvPass(StrEnum):
    """Pass of a convolution: forward, the gradient of its input, that of its weight."""

    FORWARD = "forward"
    DATA = "data"
    WEIGHT = "weight"


OPTIMIZERS = tuple(Optimizer)
PRECISIONS = tuple(Precision)
FAMILIES = tuple(Family)
SOURCES = tuple(Source)
POLICIES = tuple(Policy)
