"""Advice about a saved profile: its command is traced at other batch sizes; gpumemnet_trace has real ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpumemnet.cli.rad_estimate import command
from gpumemnet.cli.retrace import with_batch
from gpumemnet.names import Family, Optimizer, Precision, Source
from gpumemnet.profile.record import ModelProfile
from gpumemnet.tracing.saved.record import SavedProfile
from gpumemnet.tracing.script import start
from gpumemnet.units import MIB

ZEROS = dict.fromkeys(ModelProfile._fields, 0)


def saved(batch_size: int, *words: str) -> SavedProfile:
    reported: dict[str, Any] = {
        "family": Family.CNN,
        "source": Source.TRACE,
        "optimizer": Optimizer.SGD,
        "precision": Precision.AMP,
        "gpus": 1,
        "batch_size": batch_size,
        "parameters": 1000,
        "reserved_bytes": (200 + 50 * batch_size) * MIB,
        "allocated_bytes": (200 + 50 * batch_size) * MIB,
        "convs": 1,
    }
    return SavedProfile(
        profiles=(ModelProfile(**(ZEROS | reported)),),
        batch_size=batch_size,
        model="Net",
        inputs=(),
        command=words,
        versions={"gpumemnet": "9.9", "torch": "2.8.0"},
    )


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Stand in for traces, and list their batch sizes."""
    sizes: list[int] = []

    def run(words: list[str], *, environment: object, course: Path | None = None) -> SavedProfile:
        sizes.append(int(words[-1]))
        if course is not None:
            course.write_text(
                '{"level_bytes": [1048576, 3145728, 2097152], "starts": [0, 1, 2], "kept_bytes": 1048576}'
            )
        return saved(sizes[-1], *words)

    monkeypatch.setattr(start, "run", run)
    return sizes


def advice(folder: Path, file: SavedProfile, *options: str) -> Result:
    (folder / "m.rad").write_text(file.to_text())
    return CliRunner().invoke(command, [str(folder / "m.rad"), "--gpu=a100", *options])


def test_the_largest_batch_is_found_by_traces_above_and_below(tmp_path: Path, traced: list[int]) -> None:
    done = advice(tmp_path, saved(64, "python", "t.py", "--batch-size", "64"), "--largest", "--json")
    rows = json.loads(done.stdout)["largest"]
    assert len(traced) <= 3 and max(traced) > rows[0]["batch_size"], "the third follows from the first two"
    assert all(row["booked_mib"] <= row["has_mib"] for row in rows)
    for row in rows:  # each sample takes 50 MiB
        assert row["has_mib"] - row["booked_mib"] < 100


@pytest.mark.parametrize(("a_sample", "ends"), [(1, False), (0, True)])
def test_where_a_sample_takes_little_far_larger_batches_are_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, a_sample: int, ends: bool
) -> None:
    def run(words: list[str], *, environment: object, course: Path | None = None) -> SavedProfile:
        made = saved(int(words[-1]), *words)
        n_bytes = (200 + a_sample * made.batch_size // 16) * MIB
        return replace(
            made, profiles=(made.profiles[0]._replace(reserved_bytes=n_bytes, allocated_bytes=n_bytes),)
        )

    monkeypatch.setattr(start, "run", run)
    first = run(["python", "t.py", "--batch-size", "8"], environment={})
    done = advice(tmp_path, first, "--largest", "--json")
    rows = json.loads(done.stdout)["largest"]
    assert rows[0]["batch_size"] > 100_000
    assert ("a larger one may fit" in done.stderr) is ends
    assert not (a_sample and rows[0]["has_mib"] - rows[0]["booked_mib"] > 100)


def test_a_sweep_has_a_row_for_each_batch_size_and_no_dashes(tmp_path: Path, traced: list[int]) -> None:
    done = advice(tmp_path, saved(64, "python", "t.py", "--batch-size", "64"), "--sweep")
    lines = done.stdout.splitlines()
    assert traced == [16, 32, 128, 256] and len(lines) == 6 and " -" not in done.stdout
    assert [line.split()[0] for line in lines[1:]] == ["16", "32", "64", "128", "256"]


def test_gpus_are_compared_without_a_trace(tmp_path: Path, traced: list[int]) -> None:
    done = advice(tmp_path, saved(64, "python", "t.py"), "--compare", "--json")
    assert all(row["booked_mib"] for row in json.loads(done.stdout)["gpus"]) and not traced


def test_a_plot_is_of_a_step_that_is_traced_again(tmp_path: Path, traced: list[int]) -> None:
    done = advice(tmp_path, saved(64, "python", "t.py", "--batch-size", "64"), "--plot=-")
    assert traced == [64]
    assert done.stdout.startswith("One training step: batch size 64, sgd, amp\n")
    assert "1 that stay between steps, 2 of this step" in done.stdout


def test_a_plot_needs_a_command(tmp_path: Path, traced: list[int]) -> None:
    done = advice(tmp_path, saved(64), "--plot=-")
    assert "no script can be traced again; give the model's summary" in str(done.exception) and not traced


@pytest.mark.parametrize("words", [("python", "t.py"), ()])
def test_a_command_without_its_batch_size_is_named(
    tmp_path: Path, traced: list[int], words: tuple[str, ...]
) -> None:
    done = advice(tmp_path, saved(64, *words), "--largest")
    assert "states no batch size 64" in str(done.exception) and not traced
    both = replace(saved(64), profiles=(*saved(16).profiles, *saved(64).profiles))
    assert json.loads(advice(tmp_path, both, "--sweep", "--json").stdout)["sweep"][0]["batch_size"] == 16


def test_the_explanation_is_of_what_was_traced(tmp_path: Path) -> None:
    shown = advice(tmp_path, saved(64, "python", "t.py", "a b"), "--explain").stdout
    assert "One process on a100: batch size 64, optimizer sgd, precision amp\n" in shown
    assert "Traced: python t.py 'a b' (gpumemnet 9.9, torch 2.8.0).\n" in shown
    assert "one per trainable weight" not in shown


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ("python t.py --batch-size 64", "python t.py --batch-size 8"),
        ("python t.py --batch_size=64 -n 64", "python t.py --batch_size=8 -n 64"),
        ("python t.py -b 64", "python t.py -b 8"),
        ("torchrun t.py --per_device_train_batch_size 64", "torchrun t.py --per_device_train_batch_size 8"),
        ("python t.py data.batch_size=64 +bs=64", "python t.py data.batch_size=8 +bs=64"),
        ("python t.py --eval-batch-size 64", None),
        ("python t.py --num-batches 64", None),
        ("python t.py --batch-size 32", None),
        ("python t.py 64", None),
    ],
)
def test_which_words_are_the_batch_size(words: str, changed: str | None) -> None:
    found = with_batch(words.split(), 64, 8)
    assert found == (None if changed is None else changed.split())
