"""Find the lines of a TOML file that set a key, for messages and for the fixes of `rad doctor`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from slurm_plugin.core.errors import ConfigError, SettingError

_HEAD = re.compile(r"\s*\[([^\[\]]+)\]")
_KEY = re.compile(r"\s*([^\s#=\[\]{}][^#=\[\]{}]*?)\s*=")
_QUOTES = re.compile(r"[\s\"']")
_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


def places_in(text: str) -> Iterator[tuple[int, str, str]]:
    r"""Yield line number, table and key of each line that sets a key or begins a table; its key is "" then.

    >>> list(places_in('mode = "off"\n[a."b"]\n# y = 1\nx = 2\n'))
    [(1, '', 'mode'), (2, 'a.b', ''), (4, 'a.b', 'x')]
    """
    table = ""
    for number, line in enumerate(text.split("\n"), 1):
        if found := _HEAD.match(line):
            table = _QUOTES.sub("", found[1])
            yield number, table, ""
        elif found := _KEY.match(line):
            yield number, table, _QUOTES.sub("", found[1])


def line_of(text: str, key: str) -> int | None:
    r"""Return the line that sets a key, or the nearest table around it; None if there is neither.

    Args:
        text: The text of a rad.toml.
        key: With its table, as "partition.gpu.policy"; a partition's may also be set in partition_defaults.

    >>> text = "[partition_defaults]\nmargin_mib = 1\n[partition.gpu]\npolicy = 3\n"
    >>> [line_of(text, f"partition.gpu.{key}") for key in ("policy", "margin_mib", "gpu_type")], line_of(text, "mode")
    ([4, 2, 3], None)
    """
    found: dict[str, int] = {}
    for number, table, name in places_in(text):
        found.setdefault(".".join(filter(None, (table, name))), number)
    inherited = re.sub(r"^partition\.[^.]+\.", "partition_defaults.", key)
    parents = [key[:at] for at in range(len(key) - 1, 0, -1) if key[at] == "."]
    return next((found[name] for name in (key, inherited, *parents) if name in found), None)


def located(error: SettingError, text: str, path: str) -> SettingError:
    """Return an error about a key with the line of the file.

    Args:
        error: The error.
        text: The file's text.
        path: The file.
    """
    line = line_of(text, error.key)
    return SettingError(path if line is None else f"{path}:{line}", error.key, error.problem)


def not_toml(error: Exception, text: str, path: str) -> ConfigError:
    """Return the error for a text that is no TOML.

    Args:
        error: What the TOML reader raised.
        text: The file's text.
        path: The file.
    """
    found = _PLACE.fullmatch(str(error))
    if found is None:  # a RecursionError
        return ConfigError(f"{path}: brackets are nested too deeply; remove them")
    line = found[2] or len(text.splitlines())
    column = f" at column {found[3]}" if found[3] else ""
    return ConfigError(f"{path}:{line}: not TOML: {found[1]}{column}; correct the line, texts need quotes")
