"""Frozen dataclasses for every Python of users' environments, including 3.9: RHEL 9 has no newer one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        """Do nothing: only type checkers use it, and they include it; Python has it from 3.11."""
        return lambda function: function


T = TypeVar("T")
_NEWER = {"slots": True, "kw_only": True} if sys.version_info >= (3, 10) else {}


@dataclass_transform(kw_only_default=True, frozen_default=True)
def frozen(kind: type[T]) -> type[T]:
    """Make a frozen dataclass with slots, whose fields are given by name.

    Python 3.9 has neither `slots` nor `kw_only`; there, fields with a default are moved to the end.

    Args:
        kind: A class with annotated fields.
    """
    if not _NEWER:
        defaults = kind.__dict__
        kind.__annotations__ = dict(
            sorted(kind.__annotations__.items(), key=lambda each: each[0] in defaults)
        )
    return dataclass(frozen=True, **_NEWER)(kind)
