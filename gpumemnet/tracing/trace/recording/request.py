"""Memory that a kernel uses beyond its outputs."""

from __future__ import annotations

from typing import Any

from gpumemnet.records import frozen


@frozen
class Request:
    """Temporary memory of an operator.

    Attributes:
        n_bytes: Size in bytes.
        after_output: Index of the output made just before; None for the last one.
        throughout: Allocated before the first output and freed at the end: a copy of an argument.
        what: Purpose, for analysis of a trace.
    """

    n_bytes: int
    after_output: int | None = None
    throughout: bool = False
    what: Any = None
