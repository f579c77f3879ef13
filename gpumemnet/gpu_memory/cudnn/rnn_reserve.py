"""Determine cuDNN's reserve for a recurrent layer, whose row shows neither depth nor direction."""

from __future__ import annotations

from gpumemnet.gpu_memory.rules import numbers

_GATES = {"lstm": 4, "gru": 3, "rnn": 1}
MAX_LAYERS = 16
KEPT_OF_UNKNOWN = 4
"""Values per hidden unit, step, layer and direction for kinds missing from the table of rules."""


def structure(kind: str, params: int, features: int, width: int) -> tuple[int, int]:
    """Find the layers and directions that explain a parameter count.

    Args:
        kind: "lstm", "gru" or "rnn".
        params: Parameters of the layer.
        features: Width of its input.
        width: Width of its output, both directions together.

    Returns:
        (layers, directions); (1, 1) if nothing fits better.
    """
    gates = _GATES.get(kind, 1)
    best, best_error = (1, 1), float("inf")
    for directions in (1, 2):
        hidden = width // directions
        if hidden * directions != width or not hidden:
            continue
        first = directions * gates * hidden * (features + hidden + 2)
        later = directions * gates * hidden * (width + hidden + 2)
        for layers in range(1, MAX_LAYERS + 1):
            error = abs(first + (layers - 1) * later - params)
            if error < best_error:
                best, best_error = (layers, directions), error
    return best


def reserve_elements(kind: str, params: int, features: int, out: tuple[int, ...]) -> int:
    """Return the number of values that cuDNN saves for backward.

    Args:
        kind: "lstm", "gru" or "rnn".
        params: Parameters of the layer.
        features: Width of its input.
        out: Shape of its output, width last.

    Returns:
        Number of elements.
    """
    name = kind.removesuffix("cell")
    layers, directions = structure(name, params, features, out[-1])
    rows = 1
    for dim in out:
        rows *= dim
    return layers * rows * kept_values(name, directions)


def kept_values(kind: str, directions: int) -> int:
    """Return the number of values that cuDNN saves per hidden unit, step, layer and direction.

    Args:
        kind: "lstm", "gru" or "rnn".
        directions: 1 or 2.
    """
    return numbers.of("cudnn-rnn").get(f"{kind}_{directions}", KEPT_OF_UNKNOWN)
