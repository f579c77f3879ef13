"""Table of what each kind of layer saves for its backward pass; every estimate uses it.

Sources: PyTorch's tools/autograd/derivatives.yaml (which operands an operation saves; checked with
torch.autograd.graph.saved_tensors_hooks) and the autocast lists (torch.amp, "CUDA Ops that can autocast to ...").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from gpumemnet.names import Group, StrEnum


class Compute(StrEnum):
    """Type of the result under autocast.

    LOW is 16 bits, KEEP that of the input, HIGH 32 bits, for which autocast casts the input; PROMOTE is 32 bits, since
    an operand is a 32-bit parameter, without a cast.
    """

    LOW = "low"
    KEEP = "keep"
    HIGH = "high"
    PROMOTE = "promote"


class Kind(NamedTuple):
    """Behaviour of one kind of layer.

    Attributes:
        group: Family of kinds that the graph treats alike.
        saves_input: The input is saved for backward.
        saves_output: The output is saved for backward.
        mask_bytes: Extra bytes saved per output element: 1 for a dropout mask, 8 for pooling indices.
        copies: Number of further saved tensors of the output's size (composite operations).
        compute: Result type under autocast.
        pads: A padded copy of the input is saved.
        view: The output shares the input's memory.
        in_place: The output overwrites the input.
        widens: It always computes in 32 bits: it makes and saves a 32-bit copy of a 16-bit input.
    """

    group: Group
    saves_input: bool = False
    saves_output: bool = False
    mask_bytes: int = 0
    copies: int = 0
    compute: Compute = Compute.KEEP
    pads: bool = False
    view: bool = False
    in_place: bool = False
    widens: bool = False


_VIEW = Kind(group=Group.VIEW, view=True)
_CONV = Kind(group=Group.CONV, saves_input=True, compute=Compute.LOW)
_LINEAR = Kind(group=Group.LINEAR, saves_input=True, compute=Compute.LOW)
_BATCHNORM = Kind(group=Group.BATCHNORM, saves_input=True)
_LAYERNORM = Kind(group=Group.LAYERNORM, saves_input=True, compute=Compute.HIGH)
# x.float(), times rsqrt(mean of squares), back, times weight: the product's factors are kept as well.
_RMSNORM = Kind(group=Group.LAYERNORM, saves_input=True, copies=1)
_RMSNORM_SPELT_OUT = _RMSNORM._replace(compute=Compute.HIGH, widens=True)
_ACT_OUT = Kind(group=Group.ACTIVATION, saves_output=True)
_ACT_IN = Kind(group=Group.ACTIVATION, saves_input=True)
# x and one more tensor: RReLU's slopes, the denominator of Softsign, the sigmoid of QuickGELU.
_ACT_IN_AND_ONE = Kind(group=Group.ACTIVATION, saves_input=True, copies=1)
# x - tanh(x) keeps only the tanh.
_TANHSHRINK = Kind(group=Group.ACTIVATION, copies=1)
# 0.5 * x * (1 + tanh(0.79 * (x + 0.04 * x^3))) keeps x, 0.5 x, the tanh and 1 + tanh; autocast cubes in 32 bits.
_ACT_SPELT_OUT = Kind(group=Group.ACTIVATION, saves_input=True, copies=3, compute=Compute.HIGH)
# 0.5 * x * (1 + erf(x / sqrt 2)) keeps the divided x, 0.5 x and 1 + erf.
GELU_SPELT_OUT = Kind(group=Group.ACTIVATION, copies=3)
# scale * relu(x)**2 + bias: relu's output and its square are kept; autocast squares in 32 bits.
_STAR_RELU = Kind(group=Group.ACTIVATION, saves_input=True, copies=1, compute=Compute.HIGH)
_SQUARED_RELU = Kind(group=Group.ACTIVATION, copies=1, compute=Compute.HIGH)
# A factor per channel, learned in 32 bits.
_SCALE = Kind(group=Group.PLAIN, saves_input=True, compute=Compute.PROMOTE)
_DROPOUT = Kind(group=Group.DROPOUT, mask_bytes=1)
_MAXPOOL = Kind(group=Group.POOL, saves_input=True, mask_bytes=8)
_AVGPOOL = Kind(group=Group.POOL, saves_input=True)
# A convolution of the padded input with fixed weights.
_BLURPOOL = Kind(group=Group.POOL, pads=True)
_EMBEDDING = Kind(group=Group.EMBEDDING, saves_input=True, compute=Compute.HIGH)
_RNN = Kind(group=Group.RNN, saves_input=True, saves_output=True, compute=Compute.LOW)
_PLAIN = Kind(group=Group.PLAIN)
_MATMUL = Kind(group=Group.PLAIN, saves_input=True, compute=Compute.LOW)
_ATTENTION = Kind(group=Group.ATTENTION, saves_input=True, compute=Compute.LOW)

KINDS: dict[str, Kind] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _CONV),
    **dict.fromkeys(("convtranspose1d", "convtranspose2d", "convtranspose3d"), _CONV),
    **dict.fromkeys(("linear", "bilinear", "dense"), _LINEAR),
    **dict.fromkeys(
        ("batchnorm1d", "batchnorm2d", "batchnorm3d", "syncbatchnorm", "frozenbatchnorm2d"), _BATCHNORM
    ),
    **dict.fromkeys(("batchnormact2d", "instancenorm1d", "instancenorm2d", "instancenorm3d"), _BATCHNORM),
    **dict.fromkeys(("layernorm", "layernorm2d", "groupnorm", "groupnorm1"), _LAYERNORM),
    **dict.fromkeys(("rmsnorm",), _RMSNORM),
    **dict.fromkeys(("t5layernorm",), _RMSNORM_SPELT_OUT),
    **dict.fromkeys(("relu", "sigmoid", "tanh", "softmax", "logsoftmax", "softmin"), _ACT_OUT),
    **dict.fromkeys(
        ("gelu", "silu", "swish", "mish", "hardswish", "hardsigmoid", "prelu", "relu6", "bloomgelu"), _ACT_IN
    ),
    **dict.fromkeys(("elu", "selu", "celu", "softplus", "hardtanh", "logsigmoid", "threshold"), _ACT_IN),
    **dict.fromkeys(
        ("leakyrelu", "hardshrink", "softshrink", "glu", "gelutanh", "localresponsenorm"), _ACT_IN
    ),
    **dict.fromkeys(("rrelu", "softsign", "quickgeluactivation"), _ACT_IN_AND_ONE),
    **dict.fromkeys(("tanhshrink",), _TANHSHRINK),
    **dict.fromkeys(("starrelu",), _STAR_RELU),
    **dict.fromkeys(("squaredrelu", "relusquaredactivation"), _SQUARED_RELU),
    **dict.fromkeys(("scale", "affine", "learnableaffineblock", "nonorm"), _SCALE),
    **dict.fromkeys(("newgeluactivation",), _ACT_SPELT_OUT),
    **dict.fromkeys(("dropout", "alphadropout", "featurealphadropout", "stabledropout"), _DROPOUT),
    **dict.fromkeys(("dropout1d", "dropout2d", "dropout3d"), _PLAIN),
    **dict.fromkeys(
        ("maxpool1d", "maxpool2d", "maxpool3d", "maxpool2dsame", "adaptivemaxpool1d", "adaptivemaxpool2d"),
        _MAXPOOL,
    ),
    **dict.fromkeys(
        ("avgpool1d", "avgpool2d", "avgpool3d", "adaptiveavgpool1d", "adaptiveavgpool2d"), _AVGPOOL
    ),
    **dict.fromkeys(
        ("adaptiveavgpool3d", "lppool1d", "lppool2d", "fastadaptiveavgpool", "avgpool2dsame"), _AVGPOOL
    ),
    **dict.fromkeys(("embedding", "embeddingbag"), _EMBEDDING),
    **dict.fromkeys(("lstm", "gru", "rnn", "lstmcell", "grucell", "rnncell"), _RNN),
    **dict.fromkeys(("multiheadattention",), _ATTENTION),
    **dict.fromkeys(("identity", "flatten", "unflatten", "droppath", "stochasticdepth"), _VIEW),
    **dict.fromkeys(("cvtselfattentionlinearprojection", "relposbias", "unroll"), _VIEW),
    **dict.fromkeys(("matmulwrapper",), _MATMUL),
    **dict.fromkeys(
        ("upsample", "upsamplingnearest2d", "upsamplingbilinear2d", "zeropad2d", "pixelshuffle"), _PLAIN
    ),
    **dict.fromkeys(
        ("reflectionpad2d", "replicationpad2d", "constantpad2d", "permute", "channelshuffle"), _PLAIN
    ),
    **dict.fromkeys(("pixelunshuffle", "concatenate", "multiply", "unfold"), _PLAIN),
    **dict.fromkeys(("blurpool2d",), _BLURPOOL),
}

_NORMS = {"rmsnorm": _RMSNORM, "layernorm": _LAYERNORM, "groupnorm": _LAYERNORM, "batchnorm": _BATCHNORM}
_NORM_TAILS = (
    "",
    "1",
    "2d",
    "act",
    "1act",
    "act2d",
    "nobias",
    "1nobias",
    "2dnobias",
    "fp32",
    "2dfp32",
    "actfp32",
    "act2dfp32",
)
"""Suffixes that libraries add to the name of a norm: dimensions, an activation inside, no bias, 32 bits."""
_ENDINGS: tuple[tuple[str, Kind], ...] = (
    ("t5layernorm", _RMSNORM_SPELT_OUT),
    ("rmsnorm", _RMSNORM_SPELT_OUT),
    *((norm + tail, kind) for norm, kind in _NORMS.items() for tail in _NORM_TAILS),
    ("layerscale", _SCALE),
    ("layerscale2d", _SCALE),
    ("rotaryembedding", _VIEW),
    ("embedding", _EMBEDDING),
    ("droppath", _VIEW),
    ("dropout", _DROPOUT),
    ("geluactivation", _ACT_IN),
    ("gelutanh", _ACT_IN),
    ("activation", _ACT_IN),
    ("swish", _ACT_IN),
    ("conv2dsame", _CONV),
    ("stdconv2d", _CONV),
    ("conv2d", _CONV),
    ("linear", _LINEAR),
)
"""Endings of names with library prefixes: LlamaRMSNorm, BartScaledWordEmbedding, SwinDropPath."""

_OF_LAYERS = (Group.CONV, Group.LINEAR, Group.EMBEDDING, Group.ACTIVATION, Group.LAYERNORM, Group.BATCHNORM)
_BEFORE = r"bn|norm|act|conv|linear|dropout|patch|basic|separable"

_ALWAYS_IN_PLACE = frozenset(
    (
        "Conv2dNormActivation",
        "Conv3dNormActivation",
        "BatchNormAct2d",
        "ConvNormAct",
        "ConvBnAct",
        "ConvBNReLU",
    )
)
"""Modules of torchvision and timm that pass `inplace=True` to their activation."""
_FROM_RESULT = frozenset(("relu", "leakyrelu", "elu", "celu", "selu", "rrelu"))
"""Activations whose gradient follows from the result when in place, so that their input is not kept.

Others that can work in place (ReLU6, Hardtanh, SiLU, ...) keep a clone of their input, of the same size.
"""

OWN_ATTENTION = "multiheadattention module"
"""Attention that users and textbooks write out: scores, mask, softmax and dropout are separate operations."""
_OTHERWISE = {
    "Conv1D": "linear",  # transformers' is a transposed linear layer
    "MultiHeadAttention": OWN_ATTENTION,  # users' modules, made of layers; PyTorch's has a small h
}
_CONTAINERS = frozenset(("modulelist", "sequential", "moduledict", "parameterlist"))


@lru_cache(maxsize=4096)
def canonical(class_name: str) -> str:
    """Return the table's name for a class name as printed."""
    name = class_name.rsplit(".", 1)[-1]
    return _OTHERWISE.get(name) or name.lower()


@lru_cache(maxsize=4096)
def find(kind: str) -> Kind | None:
    """Return the behaviour of a kind, by its name or by a known ending of it; None if it is unknown."""
    found = KINDS.get(kind)
    if found is not None:
        return found
    return next((value for ending, value in _ENDINGS if kind.endswith(ending)), None)


def may_hold_layers(kind: str) -> bool:
    """Return whether a class may hold other layers, by its name: it is unknown, or named after several."""
    return not is_known(kind) or holds_layers(kind)


@lru_cache(maxsize=4096)
def holds_layers(kind: str) -> bool:
    """Return whether a kind known by its ending is also named after a preceding layer: "bnactconv2d".

    Such a class holds these layers: BasicConv2d, Conv2dNormActivation, NormLinear, PatchEmbedding.
    """
    ending = next((ending for ending, _ in _ENDINGS if kind.endswith(ending)), "")
    if kind in KINDS or not ending or group_of(kind) not in _OF_LAYERS:
        return False
    return re.search(_BEFORE, kind.removesuffix(ending)) is not None


def in_place(kind: Kind, name: str, holder: str, args: Mapping[str, object], *, usual: bool = False) -> Kind:
    """Return the behaviour of an activation that may work in place.

    Args:
        kind: Output of `find`.
        name: The kind's name.
        holder: Class name of its container; empty if there is none.
        args: Constructor arguments that the text shows.
        usual: Whether to assume that a ReLU works in place without evidence.
    """
    inplace = args.get("inplace", usual and name == "relu")
    if name in _FROM_RESULT and (inplace is True or holder in _ALWAYS_IN_PLACE):
        return kind._replace(saves_input=False, saves_output=True, in_place=True)
    return kind


def padded(kind: Kind, name: str, *, strided: bool) -> Kind:
    """Return the behaviour of a layer that may pad like TensorFlow: with a stride, by a copy, for uneven sides.

    Args:
        kind: Output of `find`.
        name: The kind's name.
        strided: Whether its output is smaller than its input.
    """
    return kind._replace(saves_input=False, pads=True) if strided and name.endswith("same") else kind


@lru_cache(maxsize=4096)
def group_of(kind: str) -> Group:
    """Return the group of a kind; UNKNOWN if it is not in the table."""
    found = find(kind)
    return found.group if found else Group.UNKNOWN


def is_known(kind: str) -> bool:
    """Return whether the behaviour of a kind is known."""
    return find(kind) is not None


def is_container(kind: str) -> bool:
    """Return whether a kind only holds other modules."""
    return kind in _CONTAINERS
