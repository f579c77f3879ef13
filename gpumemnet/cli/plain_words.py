"""Read the words of an ordinary call without click, whose import takes longer than an estimate.

Only what needs no message is read here. Everything else, mistakes included, is left to click.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpumemnet.names import OPTIMIZERS, PRECISIONS

_FLAGS = {
    "--gradient-checkpointing": "gradient_checkpointing",
    "--json": "as_json",
    "--explain": "explain",
    "--sbatch": "sbatch",
}
_COUNTS = {"--batch-size": "batch_size", "--seq-len": "seq_len"}
_NAMES = {"--optimizer": ("optimizer", OPTIMIZERS), "--precision": ("precision", PRECISIONS)}


def values_of(words: Sequence[str]) -> dict[str, object] | None:
    """Return the values that click would give `rad_estimate.command`, without defaults; None to leave it to click.

    Args:
        words: The words of the command line: a summary, and options.
    """
    values: dict[str, object] = {}
    rest = iter(words)
    for word in rest:
        option, equals, typed = word.partition("=")
        if word in _FLAGS:
            values[_FLAGS[word]] = True
        elif option in _COUNTS or option in _NAMES:
            name, value = _value_of(option, typed if equals else next(rest, ""))
            if value is None:
                return None
            values[name] = value
        elif word.startswith("-") or "summary" in values:
            return None
        else:
            values["summary"] = word
    return values if "summary" in values else None


def _value_of(option: str, typed: str) -> tuple[str, object | None]:
    """Return an option's name and its value; None for a value that click must judge."""
    if option in _COUNTS:
        plain = typed.isascii() and typed.isdigit() and len(typed) <= 9
        return _COUNTS[option], int(typed) if plain and int(typed) else None
    name, known = _NAMES[option]
    return name, typed if typed in known else None
