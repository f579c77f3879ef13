"""The saved profile: JSON that a person can read, and that is treated as untrusted input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpumemnet.errors import SummaryError
from gpumemnet.profile.record import MAX_NUMBER, WORDS, ModelProfile
from gpumemnet.records import frozen

FORMAT = "rad-profile"
VERSION = 1
MAX_CHARACTERS = 1 << 16
"""A file has a few thousand; a much larger one was not written by this module."""
MAX_PROFILES = 8
RELEASE = "RAD_SCRIPT_RELEASE"
"""Environment variable: the release that traces a script, whose own environment does not know it."""
MAX_LINES = 32
"""Maximum number each of inputs, versions, words of the command and warnings."""
MAX_LINE = 400
_NUMBERS = tuple(name for name in ModelProfile._fields if name not in WORDS)


@frozen
class SavedProfile:
    """One model, trained in one way, at one or a few batch sizes.

    Attributes:
        profiles: One for each batch size, in rising order; they agree in everything except sizes.
        batch_size: The batch size that the user gave; one of those in `profiles`.
        shards: Ranks that share the model's parameters (FSDP); 1 if each rank holds all.
        model: The model's class.
        inputs: Shape and type of each input, in the form of `rad-estimate --input`.
        command: The words of the command that made it; empty if Python code made it.
        versions: Versions by name of the software: gpumemnet, torch, python.
        warnings: One sentence for each assumption.
    """

    profiles: tuple[ModelProfile, ...]
    batch_size: int
    model: str
    inputs: tuple[str, ...]
    shards: int = 1
    command: tuple[str, ...] = ()
    versions: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    def to_text(self) -> str:
        """Write the file."""
        tree = {
            "format": FORMAT,
            "version": VERSION,
            "model": self.model[:MAX_LINE],
            "inputs": _cut(self.inputs),
            "batch_size": self.batch_size,
            **({"shards": self.shards} if self.shards > 1 else {}),
            "command": _cut(self.command),
            "versions": dict(self.versions),
            "warnings": _cut(self.warnings),
            "profiles": [_tree(profile) for profile in self.profiles],
        }
        return json.dumps(tree, indent=1) + "\n"

    @classmethod
    def from_text(cls, text: str, *, path: str) -> SavedProfile:
        """Parse the output of `to_text`.

        Args:
            text: Any text.
            path: File, for messages.

        Raises:
            SummaryError: It is not such a file, or has a newer version.
        """
        if len(text) > MAX_CHARACTERS:
            raise broken(path, "too large for a saved profile")
        try:
            tree = json.loads(text, parse_constant=_no_number)
        except (ValueError, RecursionError) as exc:
            raise broken(path, "not JSON") from exc
        if isinstance(tree, dict) and "model_type" in tree:
            fix = f"trace it: rad-estimate --save m.rad --module hf:{path} --batch-size N --seq-len N; then model=m.rad"
            raise SummaryError(
                path=path, problem="a config of Hugging Face Transformers, not a summary", fix=fix
            )
        if not isinstance(tree, dict) or tree.get("format") != FORMAT:
            fix = "save the text of torchinfo.summary(), or trace it: rad-estimate --save m.rad -- python train.py"
            raise SummaryError(path=path, problem="JSON, and not a saved profile", fix=fix)
        if tree.get("version") != VERSION:
            raise SummaryError(
                path=path,
                problem="made by another version",
                fix="use the gpumemnet of this site to make it again",
            )
        profiles = tree.get("profiles")
        if not isinstance(profiles, list) or not 0 < len(profiles) <= MAX_PROFILES:
            raise broken(path, f"no list of 1 to {MAX_PROFILES} profiles")
        made = tuple(_profile(each, path) for each in profiles)
        sizes = [profile.batch_size for profile in made]
        batch_size = tree.get("batch_size")
        if sizes != sorted(set(sizes)) or batch_size not in sizes or isinstance(batch_size, (bool, float)):
            raise broken(path, "its batch sizes contradict each other")
        if len({_kind(profile) for profile in made}) > 1:
            raise broken(path, "its profiles are of different trainings")
        shards = tree.get("shards", 1)
        if type(shards) is not int or not 0 < shards <= MAX_NUMBER:
            raise broken(path, "shards is no possible number")
        versions = tree.get("versions")
        if not isinstance(versions, dict) or len(versions) > MAX_LINES:
            raise broken(path, "versions is no object")
        return cls(
            profiles=made,
            batch_size=batch_size,
            shards=shards,
            model=_line(tree.get("model"), "model", path),
            inputs=_lines(tree, "inputs", path),
            command=_lines(tree, "command", path),
            versions={_line(k, "versions", path): _line(v, "versions", path) for k, v in versions.items()},
            warnings=_lines(tree, "warnings", path),
        )


def write(saved: SavedProfile, path: str | Path) -> None:
    """Write the file atomically.

    Args:
        saved: The traced profile.
        path: The file.
    """
    path = Path(path)
    draft = path.with_name(f".{path.name}.new")
    try:
        draft.write_text(saved.to_text(), encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def release() -> str:
    """Return the release of this package; "unknown" where only its files are."""
    import os
    from importlib import metadata  # slow, and only a trace needs them

    if RELEASE in os.environ:
        return os.environ[RELEASE]
    for name in ("gpumemnet", "rad-slurm"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "unknown"


def broken(path: str, problem: str) -> SummaryError:
    """Return the error for a file that `to_text` did not write.

    Args:
        path: The file.
        problem: The problem.
    """
    return SummaryError(
        path=path, problem=problem, fix="make it again with gpumemnet.save() or gpumemnet.summary()"
    )


def _kind(profile: ModelProfile) -> tuple[object, ...]:
    """Return what all profiles of a file have in common."""
    p = profile
    return (p.source, p.optimizer, p.precision, p.gradient_checkpointing, p.gpus, p.seq_len, p.parameters)


def _cut(lines: tuple[str, ...]) -> list[str]:
    return [line[:MAX_LINE] for line in lines[:MAX_LINES]]


def _tree(profile: ModelProfile) -> dict[str, object]:
    """Return the nonzero numbers of a profile by name."""
    return {name: value for name in (*WORDS, *_NUMBERS) if (value := getattr(profile, name)) or name in WORDS}


def _profile(tree: Any, path: str) -> ModelProfile:
    if not isinstance(tree, dict):
        raise broken(path, "a profile is no object")
    known: dict[str, Any] = dict.fromkeys(_NUMBERS, 0)
    for name, value in tree.items():
        if name in WORDS:
            if value not in tuple(WORDS[name]):
                raise broken(path, f"{name} is unknown")
            known[name] = next(word for word in WORDS[name] if word == value)
        elif name not in known:
            raise broken(path, "a profile contains an unknown number")
        elif type(value) is not int or not 0 <= value <= MAX_NUMBER:
            raise broken(path, f"{name} is no possible number")
        else:
            known[name] = value
    missing = next((name for name in WORDS if name not in known), None)
    if missing is not None:
        raise broken(path, f"{missing} is missing")
    # The same checks as for a job's comment, where it goes next.
    return ModelProfile.from_text(ModelProfile(**known).to_text())


def _lines(tree: Mapping[str, Any], name: str, path: str) -> tuple[str, ...]:
    found = tree.get(name)
    if not isinstance(found, list) or len(found) > MAX_LINES:
        raise broken(path, f"{name} is no list of at most {MAX_LINES} lines")
    return tuple(_line(each, name, path) for each in found)


def _line(value: Any, name: str, path: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_LINE or not value.isprintable():
        raise broken(path, f"{name} contains an invalid line")
    return value


def _no_number(_: str) -> float:
    raise ValueError("no number")
