"""The schema of rad.toml takes and refuses what load_config() does, as far as one key alone decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.admin.cli import main
from slurm_plugin.admin.schema import schema
from slurm_plugin.core.config import toml
from slurm_plugin.core.config.load import parse_config
from slurm_plugin.core.errors import ConfigError

CHECKOUT = Path(__file__).resolve().parents[4]
VALIDATOR = jsonschema.Draft202012Validator(schema())
TEMPLATE = CHECKOUT / "tests" / "golden" / "templates" / "rad.toml"
SHIPPED = [TEMPLATE, *CHECKOUT.glob("docker/**/rad.toml")]
SCHEMA = schema()
KEYS = sorted(
    [(name,) for name in SCHEMA["properties"]]
    + [(table, name) for table in ("paths", "features") for name in SCHEMA["properties"][table]["properties"]]
    + [
        ("partition", "gpu", name)
        for name in SCHEMA["properties"]["partition"]["additionalProperties"]["properties"]
    ]
)
VALUES = st.one_of(
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, -0.5, "", "auto", "gpu", "observe", "none of these", "bound", 0.9]),
    st.just([]),
    st.just({}),
)


def test_it_is_a_schema_and_every_key_is_explained() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    partition = SCHEMA["properties"]["partition"]["additionalProperties"]["properties"]
    assert [name for name, made in partition.items() if not made.get("description")] == []
    assert partition["policy"]["enum"] and partition["smact_max"]["default"] == 0.80


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_what_is_shipped_follows_it(path: Path) -> None:
    VALIDATOR.validate(toml.loads(path.read_text()))


@given(key=st.sampled_from(KEYS), value=VALUES)
def test_it_takes_what_rad_takes(key: tuple[str, ...], value: Any) -> None:
    tree: dict[str, Any] = {}
    table = tree
    for name in key[:-1]:
        table = table.setdefault(name, {})
    table[key[-1]] = value
    try:
        parse_config(tree, origin="rad.toml")
        taken = True
    except ConfigError as exc:
        words = ("unknown key", "must be one of", "must be a ", "must be tables", "must not be negative")
        if not any(word in str(exc) for word in words):
            return  # it is the file as a whole that is wrong
        taken = False
    assert VALIDATOR.is_valid(tree) == taken


def test_rad_prints_it() -> None:
    printed = CliRunner().invoke(main, ["schema"])
    assert json.loads(printed.output) == SCHEMA
