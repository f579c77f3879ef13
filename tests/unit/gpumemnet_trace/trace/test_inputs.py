from __future__ import annotations

import pytest

from gpumemnet.errors import TraceError
from gpumemnet.tracing.trace.inputs import InputSpec, parse_inputs
from gpumemnet.training import TrainingSetup

SETUP = TrainingSetup(batch_size=8, seq_len=512)


def test_plain_named_and_symbolic_inputs() -> None:
    assert parse_inputs(["128x3x224x224", "mask=BxS:bool", "input_ids=Bx512:int64"], SETUP) == (
        InputSpec(name=None, shape=(128, 3, 224, 224), dtype="float32"),
        InputSpec(name="mask", shape=(8, 512), dtype="bool"),
        InputSpec(name="input_ids", shape=(8, 512), dtype="int64"),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not [name=]SHAPE"),
        ("axb", "is not [name=]SHAPE"),
        ("3x-1", "is not [name=]SHAPE"),
        ("3xx4", "'' is no dimension"),
        ("3x4:float99", "unknown dtype"),
        ("0x4", "0 elements"),
        ("999999999x999999999x99", "check its shape"),
        ("B" * 70, "is no dimension"),
    ],
)
def test_what_is_not_an_input_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(TraceError) as caught:
        parse_inputs([text], SETUP)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_symbol_without_its_option_names_the_option() -> None:
    with pytest.raises(TraceError, match="--seq-len"):
        parse_inputs(["2xS"], TrainingSetup())


def test_no_inputs_and_repeated_inputs() -> None:
    with pytest.raises(TraceError, match="no input given"):
        parse_inputs([], SETUP)
    with pytest.raises(TraceError, match="given twice"):
        parse_inputs(["x=1", "x=2"], SETUP)
