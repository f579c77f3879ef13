"""The table of traced and measured scripts comes from rows, and a script that lacks one is named."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from paths import CHECKOUT

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "scripts"))
from script_errors import compared, read, table
from training_scripts import FOLDER, SCRIPTS, WAYS, command, ranks

from gpumemnet.gpus import gpu_named
from gpumemnet.units import MIB

H200 = gpu_named("h200")
MEASURED = {
    "kind": "measured",
    "steps": 3,
    "process_peak_bytes": 1950 * MIB,
    "reserved_peak_bytes": 1200 * MIB,
}


def traced(script: str, reserved_mib: int) -> dict[str, Any]:
    profile = {
        "family": "cnn",
        "source": "trace",
        "optimizer": "sgd",
        "precision": "fp32",
        "gpus": 1,
        "batch_size": 8,
        "parameters": 1000,
        "reserved_bytes": reserved_mib * MIB,
    }
    saved = {"format": "rad-profile", "version": 1, "model": "Net", "inputs": [], "batch_size": 8}
    whole = saved | {"command": [], "versions": {}, "warnings": [], "profiles": [profile]}
    return {"kind": "traced", "script": script, "profile": whole}


def test_the_error_is_the_estimates_against_what_the_process_used() -> None:
    rows = [MEASURED | {"script": SCRIPTS[0]}, traced(SCRIPTS[0], 9999), traced(SCRIPTS[0], 1150)]
    (found,), missing = compared(rows, H200)
    assert found.error == pytest.approx((1150 * MIB + H200.base_bytes) / (1950 * MIB) - 1)
    assert found.reserved_share == pytest.approx(1150 / 1200)
    assert len(missing) == len(SCRIPTS) + len(WAYS) - 1
    line = list(table([found]))[-1]
    assert "| 1950 |" in " ".join(line.split()) and "-4.2%" in line and "holds" in line


def test_what_was_not_measured_or_not_traced_is_said() -> None:
    rows = [
        MEASURED | {"script": SCRIPTS[0]},
        {"kind": "traced", "script": SCRIPTS[0], "why": "it fails"},
        {
            "kind": "measured",
            "script": SCRIPTS[1],
            "steps": 1,
            "process_peak_bytes": 5,
            "ended": "out of time",
        },
        traced(SCRIPTS[1], 1000),
    ]
    found, missing = compared(rows, H200)
    assert found == []
    assert missing[SCRIPTS[0]] == "not traced: it fails"
    assert missing[SCRIPTS[1]] == "not measured: out of time"


def test_a_bound_that_was_exceeded_is_shown() -> None:
    (found,), _ = compared([MEASURED | {"script": WAYS[0]}, traced(WAYS[0], 400)], H200)
    assert "BROKEN" in list(table([found]))[-1]


def test_the_manual_shows_what_the_kept_rows_come_to() -> None:
    results = CHECKOUT / "docs" / "results"
    rows = read([results / "measured_scripts.jsonl", results / "traced_scripts.jsonl"])
    found, missing = compared(rows, H200)
    manual = {
        " ".join(line.split())
        for line in (CHECKOUT / "docs" / "measurements" / "2026-11-scripts.md").read_text().splitlines()
    }
    shown = [" ".join(line.split()) for line in table(found)]
    assert not missing and [line for line in shown if line not in manual] == []


@pytest.mark.parametrize("line", (*SCRIPTS, *WAYS))
def test_every_script_is_there_and_knows_its_ranks(line: str) -> None:
    words = command(line, Path("python"))
    assert (FOLDER / line.split()[0]).is_file()
    assert str(FOLDER / line.split()[0]) in words
    assert ("--nproc-per-node" in words) == (ranks(line) > 1) == line.startswith(("ddp_", "fsdp_"))
