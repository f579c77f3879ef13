"""A user's page of waste, from runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from golden_texts import Golden

from slurm_plugin.admin.cli import main
from slurm_plugin.admin.user_page import UserPage, as_json, as_text, user_page
from slurm_plugin.core.config.load import Config, PartitionConfig
from slurm_plugin.core.history.runs import Run, peaks_path, record
from slurm_plugin.core.units import GIB

NOW_S = 1_772_366_400.0
HOUR_S = 3600.0
CONFIG = Config(partitions={"gpu": PartitionConfig(collocate=True, gpu_memory_mib=40 * 1024)})
USER = 4_000_000_000


def run(job_id: int, start_h: float, end_h: float, **more: object) -> Run:
    """Return a run between two hours before now."""
    fields: dict[str, object] = {
        "user_id": USER,
        "partition": "gpu",
        "outcome": "ok",
        "restart": 0,
        "peak_bytes": 10 * GIB,
        "booked_bytes": 30 * GIB,
        "gpus": ("GPU-0",),
        "start_s": NOW_S - start_h * HOUR_S,
        "time_s": NOW_S - end_h * HOUR_S,
        **more,
    }
    return Run(job_id=job_id, **fields)  # type: ignore[arg-type]


def page(*runs: Run, days: float = 7) -> UserPage:
    return user_page(runs, CONFIG, user_id=USER, now_s=NOW_S, days=days)


def test_unused_hours_are_those_above_the_bound_of_the_peak() -> None:
    found = page(run(1, 9, 1), run(2, 5, 1, user_id=1))
    assert found.unused_h == pytest.approx(8 * 19.5 / 40)
    assert found.digest.jobs == 1 and [part.run.job_id for part in found.runs] == [1]


def test_a_whole_gpu_counts_with_all_of_its_memory_and_days_bound_it() -> None:
    found = page(run(1, 30, 20, booked_bytes=None), days=1)
    assert found.unused_h == pytest.approx(4 * 29.5 / 40)


def test_the_most_unused_hours_come_first_and_no_more_than_ten_runs() -> None:
    found = page(*(run(job, job, 0) for job in range(1, 15)), run(20, 6, 5, booked_bytes=10 * GIB))
    assert [part.run.job_id for part in found.runs] == list(range(14, 4, -1))
    assert found.unused_h == pytest.approx(sum(range(1, 15)) * 19.5 / 40)


def test_what_is_printed(golden: Golden) -> None:
    found = page(
        run(1, 10, 9, outcome="gpu-oom", booked_bytes=12 * GIB, peak_bytes=12 * GIB),
        run(1, 9, 2, restart=1, booked_bytes=None, mean_smact=0.5),
        run(2, 8, 4, mean_smact=0.05, partition="elsewhere"),
        run(3, 5, 4, start_s=None),
    )
    golden("user_page.txt", as_text(found))
    row = json.loads(as_json(found))
    assert (row["version"], row["user_id"], row["jobs"], len(row["runs"])) == (1, USER, 3, 1)


def test_a_user_without_jobs_gets_one_line() -> None:
    assert as_text(page()) == "4000000000: 0 jobs ended in the last 7 days"


def test_the_command(tmp_path: Path) -> None:
    toml = tmp_path / "rad.toml"
    toml.write_text(f'[paths]\nstate = "{tmp_path}"\n[partition.gpu]\ngpu_memory_mib = 40960\n')
    record(peaks_path(tmp_path), run(1, 9, 1))
    words = ["report", "--config", str(toml)]
    reported = CliRunner().invoke(main, [*words, "--user", str(USER), "--days", "100000"])
    assert reported.exit_code == 0 and "4000000000: 1 job ended" in reported.output, reported.output
    for more in ([], ["7", "--user", "root"]):
        reported = CliRunner().invoke(main, [*words, *more])
        assert reported.exit_code == 2 and "give a job id, or --user NAME" in reported.output
    reported = CliRunner().invoke(main, ["report", "run.json", "--config", "/nowhere/rad.toml"])
    assert reported.exit_code == 2
    assert reported.output == (
        "rad report: 'run.json' is no job id; give a number, or ARRAY_TASK for the task of an array\n"
    )
    reported = CliRunner().invoke(main, [*words, "--user", "no such user"])
    assert reported.exit_code != 0 and "knows no user no such user" in str(reported.output) + str(
        reported.exception
    )
