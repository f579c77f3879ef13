from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from paths import CHECKOUT

from gpumemnet.cli.advice import PARTS, Subject, largest, sweep
from gpumemnet.cli.rad_estimate import command
from gpumemnet.directives.parse import Directives
from gpumemnet.gpus import gpu_named
from gpumemnet.profile.build import profile_summary
from gpumemnet.profile.step import step_of
from gpumemnet.training import TrainingSetup
from gpumemnet.units import GIB, MIB

EXAMPLES = CHECKOUT / "examples" / "models"
MODELS = ("resnet18_torchinfo.txt", "encoder12_torchinfo.txt", "mlp_torchinfo.txt")


def run(*args: str, status: int = 0) -> Result:
    result = CliRunner().invoke(command, [str(EXAMPLES / MODELS[0]), *args])
    assert result.exit_code == status, result.output
    return result


@pytest.mark.parametrize("model", MODELS)
def test_the_largest_batch_fits_and_one_more_does_not(model: str) -> None:
    directives = Directives(setup=TrainingSetup(), model=str(EXAMPLES / model))
    subject = Subject(
        directives=directives, gpu_model=gpu_named("v100"), usable_bytes=8 * GIB, estimator="rad"
    )

    def booked_mib(batch_size: int) -> float:
        return subject.booked(TrainingSetup(batch_size=batch_size))[1].n_bytes / (1 << 20)

    rows = largest(subject)
    assert [row["has_mib"] for row in rows] == [8192, 4096, 2048]
    assert rows[0]["batch_size"] is not None
    for row in rows:
        fits, space = row["batch_size"] or 0, row["has_mib"]
        assert (not fits or booked_mib(fits) <= space) and booked_mib(fits + 1) > space


def test_a_gpu_that_holds_not_even_one_sample_is_a_finding() -> None:
    answer = json.loads(run("--largest", "--gpu-memory=1G", "--json", status=1).output)
    assert [row["batch_size"] for row in answer["largest"]] == [None, None, None]
    assert " -" in run("--largest", "--gpu-memory=1G", status=1).output


def test_a_sweep_shows_what_each_setting_saves() -> None:
    rows = json.loads(run("--sweep", "--batch-size=64", "--gpu=v100", "--json").output)["sweep"]
    assert [row["batch_size"] for row in rows] == sorted(
        each for each in (16, 32, 64, 128, 256) for _ in range(6)
    )
    by = {(row["batch_size"], row["precision"], row["checkpointing"]): row["booked_mib"] for row in rows}
    assert by[64, "amp", "no"] < by[64, "fp32", "no"] < by[128, "fp32", "no"]
    assert by[256, "fp32", "yes"] <= by[256, "fp32", "no"]
    table = run("--sweep", "--batch-size=64").output.splitlines()
    assert table[0].split()[:3] == ["batch", "precision", "checkpointing"] and len(table) == 31


def test_jobs_on_a_gpu_and_its_parts_are_counted_in_whole_shards() -> None:
    """Half of 39 shards are 19: two jobs of half the memory, 20 shards each, took a GPU each."""
    directives = Directives(setup=TrainingSetup(batch_size=16), model=str(EXAMPLES / MODELS[0]))
    subject = Subject(
        directives=directives,
        gpu_model=gpu_named("a100"),
        usable_bytes=39 * GIB + 300 * MIB,
        estimator="rad",
        shards=39,
        shard_bytes=GIB,
    )
    assert [subject.part_bytes(part) for part in PARTS] == [subject.usable_bytes, 19 * GIB, 9 * GIB]
    for row in sweep(subject, 16):
        assert row["fit"] == 39 // -(-row["booked_mib"] * MIB // GIB)
    for row in largest(subject):
        part = 1.0 if row["part"] == "whole GPU" else float(row["part"].split()[0])
        assert row["booked_mib"] * MIB <= subject.part_bytes(part)


def test_all_known_gpus_side_by_side() -> None:
    rows = json.loads(run("--compare", "--batch-size=64", "--json").output)["gpus"]
    assert {"h200", "a100", "v100"} <= {row["gpu"] for row in rows}
    assert all(row["fit"] == row["has_mib"] // row["booked_mib"] for row in rows)
    run("--compare", "--batch-size=64000", status=1)


def test_advice_without_a_model_says_what_to_name(tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#RAD memory=9G\n")
    result = CliRunner().invoke(command, [str(tmp_path / "job.sh"), "--sweep"])
    assert result.exit_code != 0 and "needs a model" in str(result.exception)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_course_of_a_step_peaks_where_the_replay_does(model: str, checkpointing: bool) -> None:
    setup = TrainingSetup(batch_size=32, gradient_checkpointing=checkpointing)
    course, profile = step_of(str(EXAMPLES / model), setup), profile_summary(str(EXAMPLES / model), setup)
    # The allocator rounds what it hands out; the course does not.
    assert max(course.level_bytes) == pytest.approx(profile.allocated_bytes, rel=0.03)
    assert course.level_bytes[-1] == course.kept_bytes, "nothing of a step is left over"
    assert 0 == course.starts[0] < course.starts[1] < course.starts[2] < len(course.level_bytes)


def test_a_plot_in_the_terminal_and_in_files(tmp_path: Path) -> None:
    text = run("--plot=-", "--batch-size=64").output
    assert all(word in text for word in ("forward", "backward", "optimizer", "GiB", "at the peak"))
    for name in ("step.html", "step.svg"):
        run(f"--plot={tmp_path / name}", "--batch-size=64")
        page = (tmp_path / name).read_text()
        assert page.count("<polygon") == 3 and page.count("<svg") == 1
    result = CliRunner().invoke(command, [str(EXAMPLES / MODELS[0]), "--batch-size=8", "--plot=step.doc"])
    assert "ends in .svg, .html or .png" in str(result.exception)
