"""Parse constructor arguments from `print(model)`, and derive parameter shapes from them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from gpumemnet.names import Group
from gpumemnet.summaries.texts import kinds

_PIECE = re.compile(
    r"\s*(?:(?P<key>[A-Za-z_]\w*)\s*=\s*)?"
    r"(?P<value>\((?:[^()]|\([^()]*\))*\)|'[^']*'|\"[^\"]*\"|[A-Za-z_][\w.]*\([^()]*\)|[^,()]+)"
)
MAX_VALUE = 1 << 40
_QUANTIZED = r"\dbit|nf4|fp4|int\d|quant|awq|gptq|gemm|marlin"
"""Parts of names of layers whose weights have fewer bits."""
_GATES = {"lstm": 4, "gru": 3, "rnn": 1, "lstmcell": 4, "grucell": 3, "rnncell": 1}
_POSITIONS: dict[Group, tuple[str, ...]] = {
    Group.CONV: ("in_channels", "out_channels"),
    Group.LINEAR: ("in_features", "out_features"),
    Group.EMBEDDING: ("num_embeddings", "embedding_dim"),
    Group.RNN: ("input_size", "hidden_size"),
}
_GROUPNORM = ("num_groups", "num_features")


def parse_arguments(text: str) -> dict[str, object]:
    """Read "3, 64, kernel_size=(7, 7), bias=False" into a mapping; positional ones have the keys "0", "1", ...

    Returns:
        Numbers, tuples of numbers, booleans or strings by key.
    """
    found: dict[str, object] = {}
    if text == "inplace":  # PyTorch before 1.2
        return {"inplace": True}
    for position, match in enumerate(_PIECE.finditer(text[:2000])):
        found[match.group("key") or str(position)] = _value(match.group("value").strip())
    return found


def _value(word: str) -> object:
    if word in ("True", "False"):
        return word == "True"
    if word[:1] == "(":
        numbers = [_number(piece.strip()) for piece in word.strip("()").split(",") if piece.strip()]
        return tuple(number for number in numbers if isinstance(number, int))
    number = _number(word)
    return word.strip("'\"") if number is None else number


def _number(word: str) -> int | float | None:
    if word.isascii() and word.isdigit() and len(word) < 14:
        return min(int(word), MAX_VALUE)
    if re.fullmatch(r"-?\d{1,14}(\.\d{0,20})?(e[+-]?\d{1,2})?", word):
        return float(word)
    return None


def integer(args: Mapping[str, object], *keys: str, default: int = 0) -> int:
    """Return the first of these arguments that is a whole number, or the first entry of a tuple.

    Args:
        args: A layer's arguments by name.
        default: Result if none of them is a whole number.
        keys: Names, in order of preference.
    """
    for key in keys:
        value = args.get(key)
        if isinstance(value, tuple) and value:
            value = value[0]
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return default


def sides(args: Mapping[str, object], key: str, dims: int, default: int) -> tuple[int, ...]:
    """Return an argument as one number per spatial dimension.

    Args:
        args: Output of `parse_arguments`.
        key: Name of the argument.
        dims: Number of spatial dimensions.
        default: Result if it is missing.
    """
    value = args.get(key, default)
    if isinstance(value, tuple) and len(value) == dims and all(isinstance(side, int) for side in value):
        return tuple(int(side) for side in value)
    return (integer(args, key, default=default),) * dims


def name_positions(kind: str, group: Group, args: Mapping[str, object]) -> dict[str, object]:
    """Name positional arguments as the constructors of their group do.

    Args:
        kind: The layer's kind.
        group: Its group.
        args: Output of `parse_arguments`.
    """
    names = _GROUPNORM if kind == "groupnorm" else _POSITIONS.get(group, ())
    return {names[int(key)] if key.isdigit() and int(key) < len(names) else key: v for key, v in args.items()}


def kind_by_arguments(kind: str, inside: str) -> str:
    """Return the kind of a layer by another name (LoRACompatibleConv, MyDense) whose arguments show what it is.

    Args:
        kind: Its name in the table of kinds.
        inside: Its printed arguments.
    """
    if kinds.is_known(kind) or re.search(_QUANTIZED, kind):
        return kind
    if "in_features=" in inside and "out_features=" in inside:
        return "linear"
    if "num_embeddings=" in inside or ("padding_idx=" in inside and re.match(r"\d+, \d+", inside)):
        return "embedding"
    if re.match(r"\d+, \d+, kernel_size=|in_channels=\d+, out_channels=\d+, kernel_size=", inside):
        kernel = re.search(r"kernel_size=\(([^()]*)\)", inside)
        dims = len([side for side in kernel[1].split(",") if side.strip()]) if kernel else 2
        across = "transpose" in kind or "output_padding=" in inside
        return f"conv{'transpose' * across}{min(max(dims, 1), 3)}d"
    return kind


def parameter_shapes(kind: str, group: Group, args: Mapping[str, object]) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of a layer's parameters, from its named arguments; empty if none or unknown.

    Source: the constructors in torch.nn.

    Args:
        kind: Name of the layer's class, in lower case.
        group: Its group.
        args: Its arguments by name.
    """
    if group is Group.CONV:
        dims = next((int(letter) for letter in kind if letter.isdigit()), 2)
        ins, outs = integer(args, "in_channels"), integer(args, "out_channels")
        groups = max(integer(args, "groups", default=1), 1)
        kernel = sides(args, "kernel_size", dims, 1)
        weight = (ins, outs // groups, *kernel) if "transpose" in kind else (outs, ins // groups, *kernel)
        return (weight,) if args.get("bias") is False else (weight, (outs,))
    if group is Group.LINEAR:
        ins = integer(args, "in_features", "nx")
        outs = integer(args, "out_features", "nf")
        weight = (outs, ins)
        return (weight,) if args.get("bias") is False else (weight, (outs,))
    if group is Group.EMBEDDING:
        return ((integer(args, "num_embeddings"), integer(args, "embedding_dim")),)
    if group in (Group.BATCHNORM, Group.LAYERNORM, "groupnorm"):
        if args.get("affine", args.get("elementwise_affine", True)) is False or kind.startswith(
            "instancenorm"
        ):
            return ()
        size = args.get("num_features", args.get("0"))
        count = math.prod(size) if isinstance(size, tuple) else size
        if not isinstance(count, int):
            return ()
        return ((count,),) if "rms" in kind or "t5" in kind else ((count,), (count,))
    if group is Group.RNN:
        return _recurrent(kind, args)
    return ((integer(args, "num_parameters", default=1),),) if kind == "prelu" else ()


def _recurrent(kind: str, args: Mapping[str, object]) -> tuple[tuple[int, ...], ...]:
    gates, size, hidden = _GATES.get(kind, 1), integer(args, "input_size"), integer(args, "hidden_size")
    directions = 2 if args.get("bidirectional") is True else 1
    shapes: list[tuple[int, ...]] = []
    for layer in range(min(integer(args, "num_layers", default=1), 64)):
        fan_in = size if layer == 0 else hidden * directions
        for _ in range(directions):
            shapes += [
                (gates * hidden, fan_in),
                (gates * hidden, hidden),
                (gates * hidden,),
                (gates * hidden,),
            ]
    return tuple(shapes)
