"""Records as cheap classes: what `dataclasses` would do, they do, too."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys

import pytest

from gpumemnet.records import changing, field, frozen, is_record, names_of, replace


@frozen
class Inner:
    name: str = "a"


@frozen
class Sample:
    """A record."""

    size: int
    text: str = "x"
    words: list[str] = field(default_factory=list)
    inner: Inner = Inner()
    note: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("size")

    @property
    def double(self) -> int:
        return 2 * self.size


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """The same as Sample, made by `dataclasses`."""

    size: int
    text: str = "x"
    words: list[str] = dataclasses.field(default_factory=list)
    inner: Inner = dataclasses.field(default_factory=Inner)
    note: str = dataclasses.field(default="", compare=False)


@changing
class Count:
    number: int = 0
    seen: list[int] = field(default_factory=list)


def test_fields_are_given_by_name_and_defaults_fill_the_rest() -> None:
    made = Sample(size=3)
    assert (made.size, made.text, made.words, made.inner, made.note, made.double) == (
        3,
        "x",
        [],
        Inner(),
        "",
        6,
    )
    assert made.words is not Sample(size=3).words
    with pytest.raises(TypeError, match="size"):
        Sample()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="siez"):
        Sample(size=1, siez=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Inner("b")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="size"):
        Sample(size=-1)


def test_none_changes_and_none_has_other_attributes() -> None:
    made = Sample(size=3)
    for name in ("size", "other"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, name, 4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        del made.size
    assert not hasattr(made, "__dict__") and made.size == 3


def test_equal_by_the_fields_that_count() -> None:
    assert Sample(size=3, note="b") == Sample(size=3) != Sample(size=4)
    assert Inner() == Inner(name="a") != Inner(name="b")
    assert hash(Inner()) == hash(Inner(name="a"))
    assert Sample(size=3) != Plain(size=3) and Sample(size=3) != 3
    with pytest.raises(TypeError):
        hash(Sample(size=3))  # a list is in it


def test_replaced_printed_copied_and_pickled() -> None:
    made = Sample(size=3, words=["a"], note="b")
    assert replace(made, size=4) == Sample(size=4, words=["a"]) and replace(made, size=4).note == "b"
    assert repr(made) == "Sample(size=3, text='x', words=['a'], inner=Inner(name='a'), note='b')"
    for again in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert again == made and again.note == "b" and again is not made
    with pytest.raises(ValueError, match="size"):
        replace(made, size=-1)


def test_dataclasses_knows_them() -> None:
    made, plain = Sample(size=3), Plain(size=3)
    assert dataclasses.is_dataclass(made) and is_record(made) and not is_record(plain)
    assert dataclasses.asdict(made) == dataclasses.asdict(plain) and dataclasses.asdict(made)["inner"] == {
        "name": "a"
    }
    assert dataclasses.replace(made, size=4) == Sample(size=4)
    described = [(each.name, each.compare, each.type) for each in dataclasses.fields(made)]
    assert described == [(each.name, each.compare, each.type) for each in dataclasses.fields(plain)]
    assert names_of(made) == names_of(Sample) == tuple(each.name for each in dataclasses.fields(plain))


def test_what_changes_equals_itself_alone() -> None:
    count = Count()
    count.number += 1
    count.seen.append(3)
    assert (count.number, count.seen, Count().seen) == (1, [3], [])
    assert count == count and count != Count(number=1, seen=[3])


def test_a_field_of_dataclasses_is_refused() -> None:
    with pytest.raises(TypeError, match=r"records\.field"):

        @frozen
        class Wrong:
            words: list[str] = dataclasses.field(default_factory=list)


def test_a_class_costs_no_slow_module() -> None:
    code = (
        "import sys; from gpumemnet.records import frozen, replace\n"
        "@frozen\nclass A:\n    a: int = 1\n"
        "assert replace(A(), a=2).a == 2\n"
        "print(*{'dataclasses', 'inspect'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
