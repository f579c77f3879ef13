"""JSON schema of rad.toml, generated from the records that are its specification (core/config/settings.py).

For editors (taplo: `#:schema rad.schema.json`), for a site's checks, and for the manual. Conditions that involve two
keys are checked only by load_config().
"""

from __future__ import annotations

import dataclasses
import re
from inspect import getdoc
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from slurm_plugin.core.config.load import Config, PartitionConfig

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def schema() -> dict[str, Any]:
    """Return the schema of the whole file."""
    made = _table(Config(), hide=("partitions",))
    partition = _table(PartitionConfig())
    made["properties"]["partition"] = {
        "type": "object",
        "description": "One table for each partition that RAD knows: [partition.NAME].",
        "additionalProperties": partition,
    }
    return {"$schema": DIALECT, "title": "rad.toml", **made}


def _table(defaults: Any, *, hide: tuple[str, ...] = ()) -> dict[str, Any]:
    kind = type(defaults)
    texts, hints = descriptions(kind), get_type_hints(kind)
    properties = {}
    for field in dataclasses.fields(kind):
        if field.name in hide:
            continue
        value = getattr(defaults, field.name)
        hint = hints[field.name]
        if get_origin(hint) is dict:
            made = {"type": "object", "additionalProperties": _table(get_args(hint)[1]())}
        elif dataclasses.is_dataclass(value):
            made = _table(value)
        else:
            made = {**_kind(hint), "default": value}
        if field.name in texts:
            made["description"] = texts[field.name]
        properties[field.name] = made
    return {"type": "object", "additionalProperties": False, "properties": properties}


def descriptions(kind: type) -> dict[str, str]:
    """Return the description of each attribute in a record's docstring, on one line."""
    text = (getdoc(kind) or "").partition("Attributes:\n")[2]
    return {name: " ".join(words.split()) for name, words in _ATTRIBUTE.findall(text)}


def _kind(hint: Any) -> dict[str, Any]:
    if get_origin(hint) is Union:
        return {"anyOf": [_kind(each) for each in get_args(hint)]}
    if get_origin(hint) is Literal:
        return {"enum": list(get_args(hint))}
    if hint is bool:
        return {"type": "boolean"}
    if hint in (int, float):
        return {"type": "integer" if hint is int else "number", "minimum": 0}
    return {"type": "string"}
