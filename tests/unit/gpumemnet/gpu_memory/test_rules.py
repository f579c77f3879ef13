"""The table of what libraries do: every number is known in some way, is used, and is found where code looks for it."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from gpumemnet.gpu_memory.rules import numbers
from gpumemnet.gpu_memory.rules.numbers import ANY, REFERENCE_GPU, TABLE, Status
from gpumemnet.gpus import NAMES, gpus

PACKAGE = Path(numbers.__file__).resolve().parents[2]
CHECKOUT = Path(__file__).resolve().parents[4]
ROWS = list(csv.DictReader(TABLE.open(encoding="utf-8", newline="")))
READ = re.compile(r'(?:rule|process|cublas|_cublas|mps|nccl|device|numbers\.of\("[\w-]+"\))\["(\w+)"')


def test_every_row_says_how_its_number_is_known() -> None:
    for row in ROWS:
        assert all(row.values()) and None not in row, row
        assert row["gpu"] in (*NAMES, ANY)
        assert row["status"] != Status.MEASURED or row["found_by"] != "data sheet"


def test_no_number_stands_twice() -> None:
    keys = [(row["library"], row["gpu"], row["rule"]) for row in ROWS]
    assert len(set(keys)) == len(keys)


def test_commands_that_found_numbers_exist() -> None:
    named = {word for row in ROWS for word in re.findall(r"bench/[\w/]+\.py", row["found_by"])}
    assert named and all((CHECKOUT / name).exists() for name in named)


def test_code_reads_every_number_and_no_other() -> None:
    read = {
        name for path in PACKAGE.rglob("*.py") for name in READ.findall(path.read_text(encoding="utf-8"))
    } | {"image_sums_16bit"}
    rnn = {row["rule"] for row in ROWS if row["library"] in ("cudnn-rnn", "cudnn-rnn-trace")}
    assert read == {row["rule"] for row in ROWS} - rnn


def test_a_gpu_without_rows_of_its_own_takes_those_of_the_reference() -> None:
    assert numbers.of("cudnn", "v100") == numbers.of("cudnn", REFERENCE_GPU) == numbers.of("cudnn")
    assert numbers.of("process", "v100")["base"] < numbers.of("process")["base"]


@pytest.mark.parametrize("name", NAMES)
def test_only_a_measured_base_is_called_measured(name: str) -> None:
    statuses = {
        row["status"] for row in ROWS if (row["gpu"], row["rule"]) in ((name, "base"), (name, "conv_base"))
    }
    assert gpus()[name].measured == (statuses == {"measured"})
