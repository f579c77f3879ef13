"""One layer of a guessed block, for the templates of hidden blocks."""

from __future__ import annotations

from gpumemnet.texts.records import Layer

Dims = tuple[int, ...]


def guessed(
    kind: str, ins: Dims, outs: Dims, params: int, path: tuple[tuple[str, str], ...] = (), name: str = ""
) -> Layer:
    """Return a layer that the text does not show; the batch size is applied to its shapes already.

    Args:
        kind: As the table of kinds has it.
        ins: Shape of the input.
        outs: Shape of the output.
        params: Parameters; less than none counts as none.
        path: Containers around it.
        name: Added to the kind, for messages.
    """
    return Layer(
        kind=kind,
        name=f"{kind}{name}",
        path=path,
        input_shapes=(ins,),
        output_shapes=(outs,),
        params=max(params, 0),
    )
