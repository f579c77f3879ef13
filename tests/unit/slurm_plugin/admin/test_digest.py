"""The digest of a week, from runs."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from golden_texts import Golden
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.admin import observe_mode
from slurm_plugin.admin.cli import main
from slurm_plugin.admin.digest import DAY_S, Digest, as_json, as_text, digest_of
from slurm_plugin.core.config.load import Config, PartitionConfig
from slurm_plugin.core.history.runs import Run, peaks_path, record
from slurm_plugin.core.units import GIB

NOW_S = 1_772_366_400.0
HOUR_S = 3600.0
CONFIG = Config(partitions={"gpu": PartitionConfig(collocate=True, gpu_memory_mib=40 * 1024)})


def run(job_id: int, start_h: float, end_h: float, **more: object) -> Run:
    """Return a run between two hours before now."""
    fields = {
        "user_id": 4_000_000_000,
        "partition": "gpu",
        "outcome": "ok",
        "restart": 0,
        "peak_bytes": 10 * GIB,
        "booked_bytes": 12 * GIB,
        "gpus": ("GPU-0",),
        **more,
    }
    times = {"start_s": NOW_S - start_h * HOUR_S, "time_s": NOW_S - end_h * HOUR_S}
    return Run(job_id=job_id, **times, **fields)  # type: ignore[arg-type]


def digest(*runs: Run, days: float = 7) -> Digest:
    return digest_of(runs, CONFIG, now_s=NOW_S, days=days)


def test_two_jobs_on_one_gpu_save_the_hours_that_they_share() -> None:
    found = digest(run(1, 10, 6), run(2, 8, 4))
    assert (found.jobs, found.users, found.gpus) == (2, 1, 1)
    assert found.held_h == pytest.approx(6) and found.whole_h == pytest.approx(8)
    assert found.saved_h == pytest.approx(2)
    assert found.booked_h == pytest.approx(8 * 12 / 40) and found.used_h == pytest.approx(8 * 10 / 40)


def test_what_sharing_slowed_down_is_not_counted_as_saved() -> None:
    pair = [run(job_id, 4, 0, mean_smact=0.9, smact=0.9) for job_id in (1, 2)]
    assert (
        digest(*pair).saved_h < digest(*(replace(one, mean_smact=None, smact=None) for one in pair)).saved_h
    )
    assert digest(*pair).active_h == pytest.approx(8 * 0.9)


def test_a_run_that_had_to_be_repeated_is_a_loss() -> None:
    found = digest(run(1, 9, 7, outcome="gpu-oom"), run(1, 7, 3, restart=1, booked_bytes=None))
    assert found.saved_h == pytest.approx(-2)


def test_a_whole_gpu_books_all_of_it_and_saves_nothing() -> None:
    found = digest(run(1, 4, 0, booked_bytes=None, gpus=("GPU-0", "GPU-1"), peak_bytes=40 * GIB))
    assert found.booked_h == pytest.approx(8) and found.saved_h == pytest.approx(0)


def test_only_the_part_inside_the_days_counts() -> None:
    found = digest(run(1, 30, 20), run(2, 80, 70), days=1)
    assert found.jobs == 1 and found.held_h == pytest.approx(4)


def test_an_epilog_that_ran_twice_counts_once() -> None:
    assert digest(run(1, 4, 2), run(1, 4, 2)).held_h == pytest.approx(2)


def test_reruns_are_counted_by_how_the_run_before_ended() -> None:
    found = digest(
        run(1, 9, 8, outcome="gpu-oom"),
        run(1, 7, 6, restart=1),
        run(2, 9, 8, outcome="gpu-oom"),
        run(2, 7, 6, restart=1, outcome="victim"),
        run(2, 5, 4, restart=2),
        run(3, 5, 4, outcome="failed"),
    )
    assert found.rerun == {"gpu-oom": 2, "victim": 1}


@pytest.mark.parametrize(
    "more",
    [
        {"booked_bytes": 20 * GIB},
        {"outcome": "failed"},
        {"peak_bytes": None},
        {"partition": "elsewhere"},
        {"start_s": NOW_S - 30, "time_s": NOW_S},
    ],
    ids=str,
)
def test_a_run_that_is_not_named(more: dict[str, object]) -> None:
    one = run(1, 9, 1, booked_bytes=30 * GIB)
    assert digest(one).overbooked and not digest(replace(one, **more)).overbooked  # type: ignore[arg-type]


def test_the_users_with_most_unused_hours_are_named_first() -> None:
    found = digest(
        *(
            run(user, user, 0, user_id=user, booked_bytes=30 * GIB, gpus=(f"GPU-{user}",))
            for user in range(1, 8)
        ),
        run(99, 5, 0, user_id=9, booked_bytes=None, peak_bytes=2 * GIB),
    )
    assert [one.user_id for one in found.overbooked] == [9, 7, 6, 5, 4]
    whole, first = found.overbooked[:2]
    assert (first.runs, first.booked_bytes, first.peak_bytes) == (1, 30 * GIB, 10 * GIB)
    assert first.unused_h == pytest.approx(7 * 19.5 / 40)
    assert whole.booked_bytes == 40 * GIB


def test_what_is_printed(golden: Golden) -> None:
    found = digest(
        run(1, 10, 9, outcome="gpu-oom", mean_smact=0.5),
        run(1, 9, 2, restart=1, mean_smact=0.5),
        run(2, 8, 4, mean_smact=0.25, booked_bytes=30 * GIB, user_id=4_000_000_001),
        replace(run(3, 5, 4), start_s=None),
        run(4, 5, 4, partition="elsewhere", gpus=("GPU-1",)),
    )
    golden("digest.txt", as_text(found).replace("2026-02-22", "FROM").replace("2026-03-01", "TO"))
    row = json.loads(as_json(found, {}))
    assert row["version"] == 1 and row["rerun"] == {"gpu-oom": 1} and row["saved_h"] > 0
    assert row["overbooked"][0]["user"] == "4000000001"


def test_a_week_without_jobs_is_one_line() -> None:
    assert as_text(digest()).count("\n") == 0 and "0 jobs of 0 users" in as_text(digest())


def test_the_command_reads_the_history(tmp_path: Path) -> None:
    (tmp_path / "rad.toml").write_text(f'[paths]\nstate = "{tmp_path}"\n[partition.gpu]\ncollocate = false\n')
    arguments = ["digest", "--config", str(tmp_path / "rad.toml")]
    missing = CliRunner().invoke(main, arguments)
    assert missing.exit_code == 2 and "run this on the controller, as root" in missing.output
    record(peaks_path(tmp_path), run(1, 4, 2))
    result = CliRunner().invoke(main, [*arguments, "--days", "36500", "--json"])
    assert result.exit_code == 0 and json.loads(result.output)["version"] == 1


def test_a_log_that_the_user_may_not_read_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    (tmp_path / "rad.toml").write_text(f'[paths]\nlog = "{tmp_path}"\n[partition.gpu]\ncollocate = false\n')
    monkeypatch.setattr(observe_mode, "observed_in", refused)
    result = CliRunner().invoke(main, ["digest", "--config", str(tmp_path / "rad.toml")])
    assert result.exit_code == 2
    assert "events.jsonl: Permission denied; run this on the controller, as root" in result.output


RUNS = st.builds(
    lambda job, start, length, gpus, smact: run(
        job,
        start + length,
        start,
        gpus=tuple(f"GPU-{gpu}" for gpu in gpus),
        mean_smact=smact,
    ),
    st.integers(1, 6),
    st.floats(0, 200),
    st.floats(0, 50),
    st.sets(st.integers(0, 2)),
    st.none() | st.floats(0, 1),
)


@given(runs=st.lists(RUNS, max_size=8))
def test_no_more_is_allocated_than_whole_gpus_take_without_a_slowdown(runs: list[Run]) -> None:
    found = digest(*(replace(one, mean_smact=None) for one in runs))
    assert 0 <= found.held_h <= found.whole_h + 1e-6
    assert found.held_h <= max(1, len(runs)) * 3 * 7 * DAY_S / HOUR_S
    assert digest(*runs).whole_h <= found.whole_h + 1e-6, "a job is never faster next to others"
