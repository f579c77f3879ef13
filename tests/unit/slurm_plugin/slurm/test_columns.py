"""Tables in columns of fixed width."""

from __future__ import annotations

import time

import pytest

from slurm_plugin.core.errors import SlurmError
from slurm_plugin.slurm.columns import cut

COLUMNS = (("JobID", 20), ("Name", 508))


def table(jobs: int, *, end: str = "\n") -> str:
    return "".join(f"{number:<20}{f'a{end}b':<508}\n" for number in range(jobs))


def test_a_name_of_several_lines_is_one_field() -> None:
    rows = cut(table(3), COLUMNS)
    assert [row["JobID"] for row in rows] == ["0", "1", "2"]
    assert {row["Name"] for row in rows} == {"a\nb"}
    assert cut("", COLUMNS) == cut(" \n \n", COLUMNS) == []


def test_half_a_record_is_none() -> None:
    with pytest.raises(SlurmError, match="a record of 520 bytes where 528 were asked for"):
        cut(table(2)[:-9], COLUMNS)


def test_many_records_take_as_long_each_as_few() -> None:
    """Each took a copy of all that followed: 40,000 waiting jobs kept radd busy for minutes."""
    began_s = time.process_time()
    assert len(cut(table(40_000), COLUMNS)) == 40_000
    assert time.process_time() - began_s < 5.0
