"""Rows that do not add up to the totals below them are reported; a table with half of what counts is refused."""

from __future__ import annotations

import pytest

from gpumemnet.errors import SummaryError
from gpumemnet.profile.build import profile_with_warnings
from gpumemnet.training import TrainingSetup

ROWS = """\
----------------------------------------------------------------
        Layer (type)               Output Shape         Param #
================================================================
            Conv2d-1           [-1, 64, 32, 32]           1,792
              ReLU-2           [-1, 64, 32, 32]               0
            Linear-3                   [-1, 10]         655,370
================================================================
Total params: {total:,}
Trainable params: {total:,}
"""
SUM = 1792 + 655370


def said(text: str) -> str:
    return " ".join(profile_with_warnings(text, TrainingSetup(batch_size=8))[1])


def test_rows_that_add_up_are_no_news() -> None:
    assert "parameters" not in said(ROWS.format(total=SUM))


def test_parameters_of_a_container_are_no_news() -> None:
    assert "parameters" not in said(ROWS.format(total=SUM + 768 * 64))


def test_a_row_that_is_gone_is_reported() -> None:
    text = "\n".join(line for line in ROWS.format(total=SUM).splitlines() if "Linear" not in line)
    assert f"its rows have 1,792 of {SUM:,} parameters" in said(text)


def test_a_row_that_stands_twice_is_reported() -> None:
    lines = ROWS.format(total=SUM).splitlines()
    linear = next(line for line in lines if "Linear" in line)
    text = "\n".join(line for each in lines for line in ([each, each] if each == linear else [each]))
    assert f"its rows have {SUM + 655370:,} parameters and its total is {SUM:,}" in said(text)


def test_recurrent_layers_of_torchsummary_have_no_weights_and_it_says_so() -> None:
    text = ROWS.replace(
        "Conv2d-1           [-1, 64, 32, 32]           1,792", "LSTM-1  [[-1, 32, 64], [-1, 2, 64]]  0"
    )
    text = text.replace("ReLU-2           [-1, 64, 32, 32]", "ReLU-2               [-1, 32, 64]")
    assert "torchsummary leaves out the weights of recurrent layers" in said(text.format(total=655370))


TABLE = """\
==========================================================================================
Layer (type:depth-idx)                   {title}
==========================================================================================
Net                                      {root}
├─Linear: 1-1                            {leaf}
==========================================================================================
Total params: 650
Trainable params: 650
"""


@pytest.mark.parametrize(
    ("title", "root", "leaf", "missing"),
    [
        ("Output Shape", "[8, 10]", "[8, 10]", "Param #"),
        ("Input Shape", "[8, 64]", "[8, 64]", "Param #"),
        ("Input Shape              Param #", "[8, 64]    --", "[8, 64]    650", "Output Shape"),
        ("Mult-Adds", "--", "5,200", "Param #"),
    ],
)
def test_a_column_alone_is_refused_with_the_call_that_shows_both(
    title: str, root: str, leaf: str, missing: str
) -> None:
    with pytest.raises(SummaryError, match=rf"no column '{missing}'; print it with col_names="):
        said(TABLE.format(title=title, root=root, leaf=leaf))
