"""Meaning of profile keys: one line of JSON for each model and training setup, in STATE/models.jsonl.

    {"profile":"ab12","user":1000,"time_s":1.5,"name":"resnet50","family":"cnn","parameters":25557032,"batch_size":64,
     "optimizer":"adam","precision":"amp","text":"p4.0.1..."}

radd writes a line when a user first submits a model; `rad history` and `rad report` show its name. The name is that of
the file which the user gave as model=, so it is for display only. Only root and SlurmUser may read the lines, because
they show what each user trains.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from gpumemnet.records import frozen, names_of
from slurm_plugin.core.text import one_line

_LONGEST_NAME = 60


@frozen
class Model:
    """A model and how it is trained.

    Attributes:
        profile: Its key, as in Run.profile_key.
        user: Id of the user that submitted it.
        time_s: When that was first seen, seconds since the epoch.
        name: The user's name for it.
        family: "cnn", "transformer", ...
        parameters: Number of parameters.
        batch_size: Samples per step and process.
        optimizer: As in #RAD.
        precision: As in #RAD.
        text: The profile itself, by which runs are compared with today's estimate.
    """

    profile: str
    user: int
    time_s: float
    name: str
    family: str
    parameters: int
    batch_size: int
    optimizer: str
    precision: str
    text: str

    def __str__(self) -> str:
        """Return it in readable form."""
        size = f"{self.parameters:,} parameters"
        return f"{self.name} ({self.family}, {size}, batch {self.batch_size}, {self.optimizer}, {self.precision})"


_KINDS = {"user": int, "time_s": float, "parameters": int, "batch_size": int}


def models_path(state: Path) -> Path:
    """Return the path of the file; `state` is paths.state."""
    return state / "models.jsonl"


def name_of(path: str) -> str:
    """Return the display name of a model that a user named by a path.

    >>> name_of("models/resnet50.txt"), name_of("hf:meta/llama")
    ('resnet50', 'llama')
    """
    file = PurePosixPath(path.rpartition(":")[2] or path)
    return one_line(file.stem or str(file), _LONGEST_NAME)


def to_line(model: Model) -> bytes:
    """Return the line of a model, without its end."""
    row = {name: getattr(model, name) for name in names_of(model)}
    return json.dumps(row, separators=(",", ":")).encode("ascii")


def from_lines(lines: Iterable[bytes]) -> dict[tuple[int, str], Model]:
    """Return models by user and key, the latest line for each; damaged lines are skipped."""
    found = {}
    for line in lines:
        try:
            row = json.loads(line)
            model = Model(**{name: _KINDS.get(name, str)(row[name]) for name in names_of(Model)})
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            continue
        found[model.user, model.profile] = model
    return found
