"""Records that cost little where a program starts, on every Python of users' environments, including 3.9.

`dataclasses` loads `inspect` and writes six functions for each class: 12 ms, and 1 ms a class, where an empty Python
takes 12 ms. Here all classes share their functions but `__init__`, which is written when the first record is made.
`dataclasses.replace`, `asdict` and `fields` work on these records, too.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["changing", "field", "frozen", "is_record", "names_of", "replace"]

if TYPE_CHECKING:
    from dataclasses import field, replace

    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        """Do nothing: only type checkers use it, and they include it; Python has it from 3.11."""
        return lambda function: function

    class field:
        """A default that each record makes for itself, or that `==` leaves out."""

        __slots__ = ("compare", "stated")

        def __init__(self, *, compare: bool = True, **stated: Any) -> None:
            """Keep `default` or `default_factory`, whichever is stated."""
            self.compare, self.stated = compare, stated

    def replace(record: Any, **changes: Any) -> Any:
        """Return a record with other values in the fields that are named."""
        return type(record)(**{name: getattr(record, name) for name in names_of(record)} | changes)


T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def frozen(kind: type[T]) -> type[T]:
    """Make a class of frozen records with slots, whose fields are given by name.

    Args:
        kind: A class with annotated fields.
    """
    made: type[T] = _made(
        kind, {"__eq__": _equal, "__hash__": _hash, "__setattr__": _refuse, "__delattr__": _refuse}
    )
    return made


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def changing(kind: type[T]) -> type[T]:
    """Make a class of records with slots, whose fields are given by name and may change; each equals only itself.

    Args:
        kind: A class with annotated fields.
    """
    made: type[T] = _made(kind, {})
    return made


def is_record(value: object) -> bool:
    """Return whether a value is a record of such a class."""
    return hasattr(type(value), "_fields_by_name")


def names_of(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields, in order."""
    names: tuple[str, ...] = kind.__slots__
    return names


_NONE = object()
"""Stands for a value that was not given."""


def _made(kind: Any, functions: dict[str, Any]) -> Any:
    """Return a class with a slot for each field; none can be added to a class that is there."""
    names = tuple(kind.__annotations__)
    own = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")}
    fields = {name: _as_field(own.pop(name, _NONE)) for name in names}
    compared = [name for name, each in fields.items() if each.compare]
    shared = {
        "__slots__": names,
        "__init__": _first_init,
        "__repr__": _repr,
        "__getstate__": _state,
        "__setstate__": _restore,
        "__dataclass_fields__": _Described("__dataclass_fields__"),
        "__dataclass_params__": _Described("__dataclass_params__"),
        "_fields_by_name": fields,
        "_compared": attrgetter(*compared),
    }
    return type(kind)(kind.__name__, kind.__bases__, {**shared, **functions, **own})


def _as_field(value: Any) -> Any:
    """Return a field for what a class states behind its name: a default, a field, or nothing."""
    if isinstance(value, field):  # type: ignore[arg-type]  # a function only for type checkers
        return value
    if type(value).__module__ == "dataclasses":
        raise TypeError("a field as dataclasses makes it; take gpumemnet.records.field")
    return field() if value is _NONE else field(default=value)


def _first_init(self: Any, **values: Any) -> None:
    """Write the class's `__init__` and run it: most classes of a start make no record."""
    kind: Any = next(each for each in type(self).__mro__ if "_fields_by_name" in vars(each))
    kind.__init__ = _init_of(kind)
    kind.__init__(self, **values)


def _init_of(kind: Any) -> Any:
    """Return `__init__` of a class: it stores each argument, or its default, in the slot of its name."""
    names: dict[str, Any] = {"_NONE": _NONE}
    arguments, lines, is_frozen = ["self", "*"], [], kind.__setattr__ is _refuse
    for name, each in kind._fields_by_name.items():
        if is_frozen:
            names[f"_set_{name}"] = vars(kind)[name].__set__
        value = name
        if "default" in each.stated:
            names[f"_default_{name}"] = each.stated["default"]
            arguments.append(f"{name}=_default_{name}")
        elif "default_factory" in each.stated:
            names[f"_make_{name}"] = each.stated["default_factory"]
            arguments.append(f"{name}=_NONE")
            value = f"_make_{name}() if {name} is _NONE else {name}"
        else:
            arguments.append(name)
        lines.append(f" _set_{name}(self, {value})" if is_frozen else f" self.{name} = {value}")
    if hasattr(kind, "__post_init__"):
        lines.append(" self.__post_init__()")
    exec("\n".join([f"def __init__({', '.join(arguments)}):", *lines]), names)
    names["__init__"].__qualname__ = f"{kind.__qualname__}.__init__"
    return names["__init__"]


def _equal(self: Any, other: Any) -> bool:
    if type(other) is not type(self):
        return NotImplemented  # type: ignore[no-any-return]
    return bool(self._compared(self) == self._compared(other))


def _hash(self: Any) -> int:
    return hash(self._compared(self))


def _refuse(self: Any, name: str, *_: object) -> None:
    from dataclasses import FrozenInstanceError  # only a mistake needs it

    raise FrozenInstanceError(f"cannot change field {name!r} of {type(self).__name__}")


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names_of(self))
    return f"{type(self).__qualname__}({shown})"


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in names_of(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for name, value in zip(names_of(self), state):
        object.__setattr__(self, name, value)


class _Described:
    """What `dataclasses` looks for in a class of records; made when it looks, as that takes its time."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, record: object, kind: Any) -> Any:
        """Return it, as `dataclasses` makes it for such fields."""
        import dataclasses

        fields = [
            (name, kind.__annotations__[name], dataclasses.field(compare=each.compare, **each.stated))
            for name, each in kind._fields_by_name.items()
        ]
        described = dataclasses.make_dataclass(kind.__name__, fields, init=False, repr=False, eq=False)
        for name in ("__dataclass_fields__", "__dataclass_params__"):
            setattr(kind, name, getattr(described, name))
        return getattr(described, self.name)
