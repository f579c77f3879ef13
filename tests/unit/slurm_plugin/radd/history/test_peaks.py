from __future__ import annotations

from pathlib import Path

import pytest

from slurm_plugin.core.history.runs import Run
from slurm_plugin.core.units import GIB
from slurm_plugin.radd.history.peaks import PeakHistory


def record(peaks: PeakHistory, user_id: int, profile_key: str, peak_bytes: int) -> None:
    peaks.refresh()
    peaks.record(Run(user_id=user_id, profile_key=profile_key, peak_bytes=peak_bytes))
    peaks.refresh()


def test_a_peak_is_remembered_for_its_user_and_profile_alone(tmp_path: Path) -> None:
    peaks = PeakHistory(tmp_path / "state" / "peaks.jsonl")
    assert peaks.seen(1000, "ab") is None
    record(peaks, 1000, "ab", 10 * GIB)
    known = peaks.seen(1000, "ab")
    assert known is not None
    assert known.peak_bytes == 10 * GIB
    assert peaks.seen(1001, "ab") is None
    assert peaks.seen(1000, "cd") is None


def test_the_highest_run_counts(tmp_path: Path) -> None:
    peaks = PeakHistory(tmp_path / "peaks.jsonl")
    for peak_bytes in (10 * GIB, 20 * GIB, 15 * GIB):
        record(peaks, 1, "ab", peak_bytes)
    known = peaks.seen(1, "ab")
    assert known is not None and known.peak_bytes == 20 * GIB


def test_peaks_outlive_radd_and_damaged_lines_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "peaks.jsonl"
    record(PeakHistory(path), 1, "ab", GIB)
    with path.open("a") as file:
        file.write('half a li\n{"user":1}\n[]\n{"user":"x","profile":"ab","peak_bytes":1}\n')
        file.write('{"user":1,"profile":"ab","peak_bytes":-5}\n')
    again = PeakHistory(path)
    again.refresh()
    known = again.seen(1, "ab")
    assert known is not None and known.peak_bytes == GIB


def test_a_full_disk_costs_only_the_memory_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    peaks = PeakHistory(tmp_path / "file" / "peaks.jsonl")
    record(peaks, 1, "ab", GIB)
    assert peaks.seen(1, "ab") is not None
    assert "remembered until radd stops" in caplog.text


def test_what_epilogs_append_is_taken_in_once_its_line_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "peaks.jsonl"
    peaks = PeakHistory(path)
    peaks.refresh()
    line = (
        '{"time_s": 1.5, "job": 7, "user": 1, "outcome": "ok", "peak_bytes": 1073741824, "profile": "ab"}\n'
    )
    with path.open("a") as file:
        file.write(line[:40])
        file.flush()
        peaks.refresh()
        assert peaks.seen(1, "ab") is None
        file.write(line[40:])
    peaks.refresh()
    assert peaks.seen(1, "ab") is not None


def test_a_file_that_was_renamed_is_read_on_and_nothing_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "peaks.jsonl"
    peaks = PeakHistory(path)
    for _ in range(3):
        record(peaks, 1, "ab", GIB)
    path.rename(tmp_path / "peaks.jsonl.1")
    record(peaks, 1, "cd", GIB)
    again = PeakHistory(path)
    again.refresh()
    for each in (peaks, again):
        assert each.seen(1, "ab") is not None
        assert each.seen(1, "cd") is not None


def test_no_other_user_reads_which_jobs_ran(tmp_path: Path) -> None:
    path = tmp_path / "state" / "peaks.jsonl"
    record(PeakHistory(path), 1, "ab", GIB)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    PeakHistory(path).refresh()
    assert path.stat().st_mode & 0o777 == 0o600


def test_activity_is_remembered_with_the_peak_and_falls_slower_than_it_rises(tmp_path: Path) -> None:
    path = tmp_path / "peaks.jsonl"
    peaks = PeakHistory(path)
    peaks.refresh()
    record(peaks, 1, "ab", GIB)
    assert (known := peaks.seen(1, "ab")) is not None and known.smact is None
    for smact in (0.8, 0.4, None, float("nan")):
        peaks.record(Run(user_id=1, profile_key="ab", peak_bytes=GIB, smact=smact))
    peaks.refresh()
    again = PeakHistory(path)
    again.refresh()
    for one in (peaks, again):
        known = one.seen(1, "ab")
        assert known is not None and known.smact == 0.6
    peaks.record(
        Run(user_id=1, profile_key="ab", peak_bytes=GIB, smact=0.9)
    )  # one calm run buys no second one next to busy neighbours
    peaks.refresh()
    assert (known := peaks.seen(1, "ab")) is not None and known.smact == 0.9
