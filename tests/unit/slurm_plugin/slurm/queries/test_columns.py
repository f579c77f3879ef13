"""Tables in columns of fixed width: no byte that a user may write moves a column, a record or a number."""

from __future__ import annotations

import logging
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.errors import SlurmError
from slurm_plugin.slurm.queries.columns import Columns, Row, cut, lines, number, records
from tests.timing import within

COLUMNS: Columns = (("JobID", 20), ("Name", 508))
TWO: Columns = (("JobID", 20), ("UserID", 12), ("gres", 256), ("Comment", 300))


def table(jobs: int) -> bytes:
    return b"".join(b"%-20d%-508s\n" % (job, b"a\nb") for job in range(jobs))


def printed(columns: Columns, *rows: tuple[bytes, ...], gap: int = 0) -> bytes:
    """What Slurm prints: each field cut and filled to its width in bytes."""
    return b"".join(
        b"".join(
            cell[:width].ljust(width) + b" " * gap for cell, (_, width) in zip(row, columns, strict=True)
        )
        + b"\n"
        for row in rows
    )


def ids(row: Row) -> tuple[int, int]:
    return number(row["JobID"]), number(row["UserID"])


def test_a_name_of_several_lines_is_one_field() -> None:
    rows = cut(table(3), COLUMNS)
    assert [row["JobID"] for row in rows] == ["0", "1", "2"]
    assert {row["Name"] for row in rows} == {"a\nb"}
    assert cut(b"", COLUMNS) == cut(b" \n \n", COLUMNS) == []


@pytest.mark.parametrize("content", [table(2)[:-9], table(2)[:-1], table(1) + b"\n", b"\n" + table(1)])
def test_half_a_record_is_none(content: bytes) -> None:
    with pytest.raises(SlurmError, match="where 528 and a line end were due"):
        cut(content, COLUMNS)


def test_many_records_take_as_long_each_as_few() -> None:
    """Each took a copy of all that followed: 40,000 waiting jobs kept radd busy for minutes."""
    began_s = time.process_time()
    assert len(cut(table(40_000), COLUMNS)) == 40_000
    assert time.process_time() - began_s < within(5.0)


@given(gres=st.binary(max_size=300), comment=st.binary(max_size=400), gap=st.integers(0, 1))
def test_no_byte_of_a_user_moves_a_record_or_a_number(gres: bytes, comment: bytes, gap: int) -> None:
    content = printed(
        TWO, (b"7", b"5", gres, comment), (b"8", b"6", b"gpu:1", b"x"), (b"9", b"5", gres, comment), gap=gap
    )
    rows = cut(content, TWO, gap=gap)
    assert [ids(row) for row in rows] == [(7, 5), (8, 6), (9, 5)]
    assert (rows[1]["gres"], rows[1]["Comment"]) == ("gpu:1", "x")
    kept = rows[0]["Comment"].encode(errors="surrogateescape")
    assert kept == comment[:300].rstrip(b" "), "what goes back to Slurm keeps every byte"


def test_every_byte_is_one_byte_wide() -> None:
    for byte in (bytes([code]) for code in range(1, 256)):
        content = printed(TWO, (b"7", b"5", byte * 256, byte * 300), (b"8", b"6", b"g", b"c"))
        assert records(content, TWO, ids) == ((7, 5), (8, 6)), byte


def test_a_record_that_cannot_be_read_costs_that_record_and_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    content = printed(TWO, (b"7", b"5", b"", b""), (b"8", b"\xff\x1b", b"", b""), (b"9", b"6", b"", b""))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert records(content, TWO, ids) == ((7, 5), (9, 6))
    (line,) = caplog.messages
    assert "JobID 8" in line and line.isprintable()


@pytest.mark.parametrize("text", ["", "1_0", " 7", "7 ", "٧", "+7", "0x7", "7\n", "1e3", "9" * 20])
def test_what_python_takes_for_a_number_slurm_does_not_print(text: str) -> None:
    with pytest.raises(ValueError, match="is no number"):
        number(text)


def test_only_a_line_end_ends_a_line() -> None:
    assert lines("a\u2028b\x0b\x0c\x1c\x85\rc\n\nd") == ["a\u2028b\x0b\x0c\x1c\x85\rc", "d"]
