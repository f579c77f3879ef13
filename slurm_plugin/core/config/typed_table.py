"""Convert a TOML table to a record: every key must be known, every value of its field's type."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from gpumemnet.records import is_record, names_of, replace
from slurm_plugin.core.errors import SettingError

T = TypeVar("T")


@cache
def _hint(kind: type, name: str) -> Any:
    """Return the type of a record's field; to evaluate all fields' takes longer than to read rad.toml."""
    alone = type(kind.__name__, (), {"__annotations__": {name: kind.__annotations__[name]}})
    return get_type_hints(alone, vars(sys.modules[kind.__module__]))[name]


def build(base: T, values: dict[str, Any], *, origin: str, where: str, strict: bool) -> T:
    """Return a record with the values of a table, each checked against its field's type.

    Args:
        base: A dataclass with the values that a table may leave out.
        values: The table.
        origin: File name for messages.
        where: Name of the table with a dot behind it; empty for the file itself.
        strict: Whether an unknown key is an error.

    Raises:
        SettingError: A key is unknown (the nearest valid one is named) or a value is of the wrong kind.
    """
    known = [name for name in names_of(base) if name != "partitions"]
    changes: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known and not strict:
            continue
        if name not in known:
            import difflib  # not at the top: hooks load this file with every job

            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
            problem = f"unknown key {where}{name}; did you mean {where}{nearest}?"
            raise SettingError(origin, f"{where}{name}", problem)
        current, hint = getattr(base, name), _hint(type(base), name)  # type: ignore[arg-type]
        if get_origin(hint) is dict:
            changes[name] = dict(current)
            for each, table in _table(value, f"{where}{name}", origin).items():
                inside = f"{where}{name}.{each}"
                record = current.get(each, get_args(hint)[1]())
                values = _table(table, inside, origin)
                changes[name][each] = build(record, values, origin=origin, where=f"{inside}.", strict=strict)
        elif is_record(current):
            inside = f"{where}{name}"
            table = _table(value, inside, origin)
            changes[name] = build(current, table, origin=origin, where=f"{inside}.", strict=strict)
        else:
            changes[name] = _checked(value, hint, origin=origin, key=f"{where}{name}")
    return replace(base, **changes)  # type: ignore[type-var]


def _table(value: Any, name: str, origin: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SettingError(origin, name, f"{name} must be a table, as in [{name}]")
    return value


def _checked(value: Any, kind: Any, *, origin: str, key: str) -> Any:
    """Return value if it is of the field's type.

    Raises:
        SettingError: It is not; the text names what is expected.
    """
    expected = "one of "
    if get_origin(kind) is Union:  # a number, or one of some words
        expected = "a number or "
        number, words = get_args(kind)
        kind = words if isinstance(value, str) else number
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        if value not in choices:
            raise SettingError(origin, key, f"{key} is {value!r}; it must be {expected}{', '.join(choices)}")
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise SettingError(origin, key, f"{key} is {value!r}; it must be a {_KIND_NAMES[kind]}")
    if kind in (int, float) and not 0 <= value < float("inf"):
        raise SettingError(origin, key, f"{key} is {value!r}; it must not be negative")
    return value


_KIND_NAMES = {bool: "boolean (true or false)", int: "whole number", float: "number", str: "string"}
