"""Memory that a kernel takes beyond its outputs."""

from __future__ import annotations

from typing import Any

from gpumemnet.records import frozen


@frozen
class Request:
    """Memory that an operator takes for itself.

    Attributes:
        n_bytes: How much.
        after_output: Index of the output that is made just before; None for the last one.
        throughout: Taken before the first output, given back at the end: a copy of an argument.
        what: Why, for those who study a trace.
    """

    n_bytes: int
    after_output: int | None = None
    throughout: bool = False
    what: Any = None
