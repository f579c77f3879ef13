"""Words that are read without click mean what click makes of them."""

from __future__ import annotations

from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumemnet.cli.plain_words import values_of
from gpumemnet.cli.rad_estimate import command

WORDS = st.sampled_from(
    (
        "m.txt", "job.sh", "", "-", "--", "-h", "--help", "--version", "--json", "--json=1", "--explain", "--sbatch",
        "--gradient-checkpointing", "--batch-size", "--batch-size=8", "--batch-size=0", "--batch-size=-3", "--seq-len",
        "--seq-len=0512", "--seq-len=99999999999", "--optimizer", "--optimizer=sgd", "--optimizer=SGD", "adam", "8",
        "--precision=bf16", "--precision", "fp32", "--gpu=h100", "--gpu", "h200", "--batch", "--save=m.rad", "\u0664",
    )
)  # fmt: skip


def by_click(words: list[str]) -> dict[str, Any]:
    """Return what click gives the command, without defaults."""
    with command.make_context("rad-estimate", list(words)) as context:
        return {
            name: value
            for name, value in context.params.items()
            if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
        }


@given(st.lists(WORDS, max_size=6))
def test_the_values_are_those_of_click(words: list[str]) -> None:
    values = values_of(words)
    if values is not None:
        assert values == by_click(words)


@pytest.mark.parametrize(
    "words",
    [
        ["m.txt"],
        ["m.txt", "--batch-size", "64", "--json"],
        ["--optimizer=sgd", "--precision", "bf16", "job.sh"],
    ],
)
def test_an_ordinary_call_needs_no_click(words: list[str]) -> None:
    assert values_of(words) == by_click(words)


@pytest.mark.parametrize(
    "words",
    [[], ["--help"], ["-"], ["m.txt", "more"], ["m.txt", "--batch-size=0"], ["m.txt", "--optimizer=SGD"]],
)
def test_the_rest_is_clicks(words: list[str]) -> None:
    assert values_of(words) is None
