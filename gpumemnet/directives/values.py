"""Parse the values of each key of a directive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

from gpumemnet.directives.words import WordPlace
from gpumemnet.errors import DirectiveError, SetupError
from gpumemnet.names import MpsServer, Optimizer, Policy, Precision, StrEnum
from gpumemnet.units import GIB, KIB, MIB

MAX_COUNT = 1 << 30
MAX_GPUS = 1024
Confidence = float | Literal["bound"]
LEAST_CONFIDENCE, MOST_CONFIDENCE = 0.5, 0.999
DEFAULT_CONFIDENCE = 0.95
"""Confidence in partitions that set none."""
_UNIT_BYTES = {"K": KIB, "M": MIB, "G": GIB, "T": GIB * KIB, "": MIB}
"""Slurm's notation: a bare number is MiB, G means GiB. A bare one below a GiB is probably an error."""
_HALF = "write amp for autocast, in fp16 or bf16, and bf16 for a model that is itself in 16 bits"
_YES = ("yes", "true", "on", "1")
_NO = ("no", "false", "off", "0")


def short(value: str, most: int = 30) -> str:
    r"""Return a value for a message: short, and without terminal control characters.

    Args:
        value: As written by the user.
        most: Maximum number of characters.

    >>> short("\x1b[2J")
    '\\x1b[2J'
    """
    shown = value if len(value) <= most else f"{value[: most - 3]}..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def _count(key: str, value: str, place: WordPlace) -> int:
    limit = MAX_GPUS if key == "gpus" else MAX_COUNT
    if value.isascii() and value.isdigit() and len(value) < 12 and 0 < int(value) <= limit:
        return int(value)
    fix = _plain(value, f"give a whole number from 1 to {limit}")
    raise place.error(f"{key}={short(value)} is impossible", fix)


def _plain(value: str, fix: str) -> str:
    """Return the fix; for a value that needs a shell's expansion, or holds the next setting, say so."""
    if "," in value and "=" in value:
        return f"{fix}; separate settings by spaces, without commas"
    return f"{fix}; variables are not expanded in #RAD lines" if "$" in value else fix


def _flag(key: str, value: str, place: WordPlace) -> bool:
    if value.lower() in _YES + _NO:
        return value.lower() in _YES
    raise place.error(f"{key}={short(value)} is neither yes nor no", f"write {key}=yes or {key}=no")


def _one_of(
    names: type[StrEnum], hints: Mapping[str, str] = MappingProxyType({})
) -> Callable[[str, str, WordPlace], StrEnum]:
    """Return a parser of names, case-insensitive.

    Args:
        names: The names.
        hints: The right value, by part of other tools' names.
    """

    def read(key: str, value: str, place: WordPlace) -> StrEnum:
        if value.lower() in tuple(names):
            return names(value.lower())
        for part, fix in hints.items():
            if part in value.lower():
                raise place.error(f"unknown {key} '{short(value)}'", fix)
        import difflib  # only an error needs it

        near = difflib.get_close_matches(value.lower(), names, n=1)
        fix = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(names)}"
        raise place.error(f"unknown {key} '{short(value)}'", fix)

    return read


def amount_of_memory(text: str, option: str) -> int:
    """Return the bytes of an amount as written by users; a bare number is MiB, G means GiB.

    Args:
        text: "24G", "512M".
        option: Its option, for the error.

    Raises:
        SetupError: It is not an amount.
    """
    try:
        return _memory("memory", text, WordPlace(path=option, line=None))
    except DirectiveError as exc:
        raise SetupError(
            f"{option} {short(text)} is not an amount of memory; write for example {option} 24G"
        ) from exc


def _memory(key: str, value: str, place: WordPlace) -> int:
    number = value.upper().removesuffix("B").removesuffix("I")
    unit = number[-1:] if number[-1:] in _UNIT_BYTES and not number[-1:].isdigit() else ""
    digits = number.removesuffix(unit)
    whole, _, part = digits.partition(".")
    is_number = (whole + part).isascii() and (whole + part).isdigit() and whole and digits[-1] != "."
    if is_number and len(digits) < 10 and float(digits):
        if not unit and float(digits) < KIB:
            raise place.error(
                f"{key}={digits} are {digits} MiB, less than any process uses", f"write {key}={digits}G"
            )
        return -(-int(whole + part) * _UNIT_BYTES[unit] // int("1" + "0" * len(part)) // MIB) * MIB
    fix = _plain(value, "write for example memory=12G")
    raise place.error(f"{key}={short(value)} is not an amount of memory", fix)


def _confidence(key: str, value: str, place: WordPlace) -> Confidence:
    if value == "bound":
        return "bound"
    try:
        share = float(value) if len(value) < 8 else 0.0
    except ValueError:
        share = 0.0
    if LEAST_CONFIDENCE <= share <= MOST_CONFIDENCE:
        return share
    fix = f"give a share of jobs from {LEAST_CONFIDENCE} to {MOST_CONFIDENCE}, or bound"
    raise place.error(f"{key}={short(value)} is impossible", fix)


def _text(key: str, value: str, place: WordPlace) -> str:
    if "\0" in value:
        raise place.error(f"{key} contains a zero byte", "remove it")
    return value


READERS: dict[str, Callable[[str, str, WordPlace], Any]] = {
    "model": _text,
    "batch_size": _count,
    "seq_len": _count,
    "optimizer": _one_of(Optimizer),
    "precision": _one_of(Precision, dict.fromkeys(("16", "half", "mixed"), _HALF)),
    "gradient_checkpointing": _flag,
    "gpus": _count,
    "policy": _one_of(Policy),
    "memory": _memory,
    "retry": _flag,
    "confidence": _confidence,
    "mps_server": _one_of(MpsServer),
}
"""Parser of each key: converts the text to a value, or raises DirectiveError."""
