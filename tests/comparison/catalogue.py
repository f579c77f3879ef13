"""The catalogue: heads of public job scripts (heads.txt), what their bodies do (forms.txt), and cells of both."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Literal

HERE = Path(__file__).resolve().parent

Release = tuple[int, int]
Size = Literal["short", "middle", "long"]

MIDDLE_TAG = "@middle "
FORMS_PER_JOB = 26
"""At most: a job with more steps would last longer than all others."""

SHORT_FORMS, LONG_FORMS = 2, 10
"""How many forms stand in a job of a head that is no kind of its own, next to the plain one."""

BATCH_ONLY = (
    *("--array", "-a", "--requeue", "--no-requeue", "--open-mode", "--parsable", "--wrap", "--ignore-pbs"),
    *("--output", "-o", "--error", "--input", "--get-user-env", "--export", "--verbose", "--propagate"),
    *("--signal=B:", "--wait-all-nodes", "--kill-on-invalid-dep", "--chdir", "-D", "--job-name"),
)
"""Options that srun or salloc lack, or that mean another thing there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The #SBATCH lines of one public script.

    Attributes:
        name: Its name in tables.
        options: One line each; "hetjob" parts components.
        tags: What forms.txt's and heads.txt's first lines explain; a tag without a value has "".
        env: Variables that its user has set.
    """

    name: str
    options: tuple[str, ...]
    tags: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)

    @property
    def is_kind(self) -> bool:
        """Whether jobs of this head run every form."""
        return "kind" in self.tags

    @property
    def is_hetjob(self) -> bool:
        """Whether it has several components."""
        return not {"hetjob", "packjob"}.isdisjoint(self.options)

    @property
    def is_interactive(self) -> bool:
        """Whether srun and salloc take the same options."""
        special = {"stdin", "wrap", "python", "sh", "exit"} & self.tags.keys()
        return not special and not any(line.startswith(BATCH_ONLY) for line in self.options)

    def runs_on(self, release: Release) -> bool:
        """Return whether a release knows these options."""
        since, until = self.tags.get("since", "0.0"), self.tags.get("until", "99.0")
        return _release(since) <= release < _release(until)

    def words(self) -> list[str]:
        """Return the options as a command line has them."""
        lines = (":" if line in ("hetjob", "packjob") else line for line in self.options)
        return list(chain.from_iterable(map(shlex.split, lines)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Shell text of a job's body.

    Attributes:
        name: Its name in tables.
        text: What a shell runs.
        is_middle: Whether the middle size runs it in each kind of job.
    """

    name: str
    text: str
    is_middle: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One submission.

    Attributes:
        head: What it requests.
        entrance: "sbatch", "salloc" or "srun".
        forms: What its body does, one after another.
        number: Distinguishes submissions of the same head.
    """

    head: Head
    entrance: str
    forms: tuple[Form, ...]
    number: int = 0

    @property
    def name(self) -> str:
        """The name of its folder, the same on every cluster."""
        return f"{self.head.name}.{self.entrance}.{self.number}"


@cache
def heads() -> tuple[Head, ...]:
    """Return every head of heads.txt."""
    return tuple(_head(line) for line in _lines("heads.txt"))


@cache
def forms() -> tuple[Form, ...]:
    """Return every form of forms.txt, those with a % in their four spellings."""
    found = []
    for line in _lines("forms.txt"):
        name, _, text = line.partition(" ")
        middle = text.startswith(MIDDLE_TAG)
        text = text.removeprefix(MIDDLE_TAG)
        options = ("", "--overlap", "--exact", "--exclusive") if " % " in text else ("",)
        found += [
            Form(
                name=f"{name}{option}",
                text=text.replace(" % ", f" {option} " if option else " "),
                is_middle=middle,
            )
            for option in options
        ]
    return tuple(found)


def cells(release: Release, *, size: Size) -> list[Cell]:
    """Return what is submitted.

    Args:
        release: Slurm's, for options that it lacks.
        size: "short" for every head and every form at least once, "middle" for each kind with the forms that ask for
            a GPU, "long" for every head, and each kind with each form.
    """
    known = [head for head in heads() if head.runs_on(release)]
    plain, *others = forms()
    turn = _taking_turns(others)
    found: list[Cell] = []
    for index, head in enumerate(known):
        if head.is_kind and size != "short":
            chosen = [form for form in others if form.is_middle or size == "long"]
            found += _all_forms(head, "sbatch", chosen)
            if head.is_interactive:
                found += _all_forms(head, "salloc", chosen)
                found.append(Cell(head=head, entrance="srun", forms=(plain,)))
        elif size != "middle":
            few = tuple(islice(turn, LONG_FORMS if size == "long" else SHORT_FORMS))
            found.append(Cell(head=head, entrance="sbatch", forms=(plain, *few)))
            if head.is_interactive and (size == "long" or head.is_kind or index % 10 == 0):
                found.append(Cell(head=head, entrance="srun", forms=(plain,)))
                few = tuple(islice(turn, SHORT_FORMS))
                found.append(Cell(head=head, entrance="salloc", forms=(plain, *few)))
    return found


def _all_forms(head: Head, entrance: str, others: list[Form]) -> list[Cell]:
    plain = forms()[0]
    chunks = [others[start : start + FORMS_PER_JOB] for start in range(0, len(others), FORMS_PER_JOB)]
    return [
        Cell(head=head, entrance=entrance, forms=(plain, *chunk), number=number)
        for number, chunk in enumerate(chunks)
    ]


def _taking_turns(others: list[Form]) -> Iterator[Form]:
    while True:
        yield from others


def _lines(name: str) -> list[str]:
    lines = (HERE / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _head(line: str) -> Head:
    name, _, rest = line.partition(" ")
    tags: dict[str, str] = {}
    env: dict[str, str] = {}
    options = []
    for part in rest.split("  "):
        words = part.strip().split(" ")
        for word in [word for word in words if word.startswith("@")]:
            key, _, value = word[1:].partition("=")
            if key == "env":
                variable, _, text = value.partition("=")
                env[variable] = text
            else:
                tags[key] = value
        if text := " ".join(word for word in words if not word.startswith("@")).strip():
            options.append(text)
    return Head(name=name, options=tuple(options), tags=tags, env=env)


def _release(text: str) -> Release:
    year, _, month = text.partition(".")
    return int(year), int(month)
