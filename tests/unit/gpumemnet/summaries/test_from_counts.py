"""Tables that show neither shapes nor arguments: what the parameter counts tell must be what `print(model)` shows."""

from __future__ import annotations

import pytest
from paths import SUMMARIES

from gpumemnet.errors import SetupError
from gpumemnet.names import Source
from gpumemnet.profile.build import profile_with_warnings
from gpumemnet.summaries.shapes.from_counts import with_arguments
from gpumemnet.summaries.texts.records import Layer
from gpumemnet.training import TrainingSetup

SETUP = TrainingSetup(batch_size=8, seq_len=64)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5"])
def test_the_counts_of_a_table_without_an_input_tell_what_print_shows(name: str) -> None:
    """The first guess of these was a hundred times too much, and the job was refused."""
    printed, _ = profile_with_warnings(str(SUMMARIES / f"{name}.repr.txt"), SETUP)
    counted, warnings = profile_with_warnings(str(SUMMARIES / f"{name}_no_input.torchinfo.txt"), SETUP)
    assert counted.saved_bytes == pytest.approx(printed.saved_bytes, rel=0.15)
    assert counted.parameters == pytest.approx(printed.parameters, rel=0.02)
    assert "input_data=... for a dictionary" in warnings[0]
    assert counted.source is Source.MODULE_REPR, "its bound is that of texts without shapes"
    hidden, _ = profile_with_warnings(str(SUMMARIES / f"{name}_no_input_default.torchinfo.txt"), SETUP)
    assert printed.saved_bytes / 2 < hidden.saved_bytes < 2 * printed.saved_bytes


def row(kind: str, params: int, block: str = "b") -> Layer:
    return Layer(kind=kind, name=kind, path=(("Block", block),), params=params)


def test_a_block_ends_as_wide_as_it_began_and_an_odd_count_shows_nothing() -> None:
    rows = [
        row("embedding", 1000 * 64),
        row("embedding", 8 * 3),  # scores of relative positions
        row("rmsnorm", 64),
        row("linear", 64 * 256),
        row("linear", 64 * 256),
        row("linear", 256 * 64),
        row("linear", 101, "head"),
    ]
    found = [
        (layer.args.get("in_features"), layer.args.get("out_features")) for layer in with_arguments(rows)[3:]
    ]
    assert found == [(64, 256), (64, 256), (256, 64), (None, None)]
    assert [layer.args.get("embedding_dim") for layer in with_arguments(rows)[:2]] == [64, None]


@pytest.mark.parametrize("rows", [[row("embedding", 6400)], [row("layernorm", 128), row("lstm", 4096)]])
def test_a_model_whose_width_nothing_shows_is_no_guess(rows: list[Layer]) -> None:
    with pytest.raises(SetupError, match=r"neither shapes nor the width of (embedding|lstm); print it"):
        with_arguments(rows)
