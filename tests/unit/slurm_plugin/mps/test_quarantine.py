"""For how long, and which of a user's jobs, run apart after a fault on a shared server."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_disks import fill, small_disk

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.errors import MpsError
from slurm_plugin.core.files.preallocated import SpareFiles
from slurm_plugin.mps.quarantine import (
    FIRST_S,
    KEPT_S,
    LONGEST_S,
    MOST,
    Caused,
    Quarantine,
    add_fault,
    faults_of,
    quarantine_of,
)

NOW_S = 1_800_000_000.0
ALICE = 1001


def caused(
    job_id: int, ago_s: float = 0.0, profile_key: str | None = "ab", *, certain: bool = True
) -> Caused:
    return Caused(job_id=job_id, restart=0, profile_key=profile_key, time_s=NOW_S - ago_s, certain=certain)


def test_after_a_first_fault_the_job_and_its_model_are_apart_for_an_hour() -> None:
    first = (caused(1),)
    for job_id, profile in ((1, "cd"), (2, "ab")):
        found = quarantine_of(first, job_id=job_id, profile_key=profile, now_s=NOW_S)
        assert found is not None and (found.until_s, found.all_jobs) == (NOW_S + FIRST_S, False)
        assert quarantine_of(first, job_id=job_id, profile_key=profile, now_s=NOW_S + FIRST_S) is None
    assert quarantine_of(first, job_id=2, profile_key="cd", now_s=NOW_S) is None
    assert quarantine_of(first, job_id=2, profile_key=None, now_s=NOW_S) is None


def test_a_job_without_a_model_is_recognised_by_having_none() -> None:
    assert quarantine_of((caused(1, profile_key=None),), job_id=2, profile_key=None, now_s=NOW_S) is not None


def test_after_a_second_fault_all_jobs_of_the_user_are_apart_for_twice_as_long() -> None:
    found = quarantine_of((caused(1, 7200.0), caused(2)), job_id=9, profile_key="cd", now_s=NOW_S)
    assert found is not None and (found.until_s, found.all_jobs) == (NOW_S + 2 * FIRST_S, True)


def test_after_a_fault_among_several_jobs_all_jobs_of_the_user_are_apart_for_an_hour_after_the_last() -> None:
    faults = tuple(caused(job, 60.0 * job, certain=False) for job in range(1, 30))
    found = quarantine_of(faults, job_id=9, profile_key="cd", now_s=NOW_S)
    assert found is not None
    assert (found.until_s, found.all_jobs, found.certain) == (NOW_S - 60.0 + FIRST_S, True, False)
    assert quarantine_of(faults, job_id=1, profile_key="ab", now_s=found.until_s) is None


@given(
    faults=st.lists(
        st.builds(caused, st.integers(1, 3), st.floats(0, 2 * KEPT_S), certain=st.booleans()), max_size=20
    )
)
def test_a_fault_among_several_jobs_lengthens_nothing_beyond_its_own_hour(faults: list[Caused]) -> None:
    found = quarantine_of(faults, job_id=1, profile_key="ab", now_s=NOW_S)
    alone = quarantine_of([one for one in faults if one.certain], job_id=1, profile_key="ab", now_s=NOW_S)
    hour_s = max((one.time_s + FIRST_S for one in faults if not one.certain), default=0.0)
    until_s = max(hour_s, 0.0 if alone is None else alone.until_s)
    assert (0.0 if found is None else found.until_s) == (until_s if until_s > NOW_S else 0.0)
    assert found is None or found.certain or found.until_s == hour_s


@given(ages=st.lists(st.floats(0, 2 * KEPT_S), max_size=30))
def test_it_grows_with_repetition_and_ends(ages: list[float]) -> None:
    faults = tuple(caused(number, age) for number, age in enumerate(ages))
    counted = [age for age in ages if age <= KEPT_S]
    found = quarantine_of(faults, job_id=0, profile_key="ab", now_s=NOW_S)
    length_s = min(LONGEST_S, FIRST_S * 2.0 ** (len(counted) - 1))
    assert (found is not None) == bool(counted and NOW_S - min(counted) + length_s > NOW_S)
    assert found is None or found.until_s <= NOW_S + LONGEST_S


def test_a_fault_is_recorded_once_for_a_run_by_hooks_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        jobs = (1, 2, 3, 1, 2, 3)
        list(pool.map(lambda job: add_fault(tmp_path, ALICE, caused(job), clock=SystemClock()), jobs))
    assert sorted(one.job_id for one in faults_of(tmp_path, ALICE)) == [1, 2, 3]
    assert faults_of(tmp_path, ALICE + 1) == ()
    file = tmp_path / "mps-faults" / f"{ALICE}.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_of_faults_that_others_may_have_caused_a_jobs_last_is_kept(tmp_path: Path) -> None:
    for fault in (
        caused(1, 30.0, certain=False),
        caused(2, 30.0, certain=False),
        caused(1, 20.0),
        caused(1, 10.0, certain=False),
        *(caused(job, certain=False) for job in range(10, 10 + MOST - 1)),
    ):
        add_fault(tmp_path, ALICE, fault, clock=SystemClock())
    kept = faults_of(tmp_path, ALICE)
    assert kept[:2] == (caused(1, 20.0), caused(1, 10.0, certain=False)), "they push out no certain one"
    assert len(kept) == MOST + 1


def test_a_record_of_the_release_before_is_certain(tmp_path: Path) -> None:
    add_fault(tmp_path, ALICE, caused(1), clock=SystemClock())
    file = tmp_path / "mps-faults" / f"{ALICE}.json"
    file.write_text(file.read_text().replace(', "certain": true', ""))
    assert "certain" not in file.read_text()
    assert faults_of(tmp_path, ALICE) == (caused(1),)


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"job_id": "x"}]', "null"])
def test_a_damaged_file_is_no_quarantine(tmp_path: Path, text: str) -> None:
    add_fault(tmp_path, ALICE, caused(1), clock=SystemClock())
    (tmp_path / "mps-faults" / f"{ALICE}.json").write_text(text)
    assert faults_of(tmp_path, ALICE) == ()


def test_where_nothing_can_be_written_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "mps-faults").touch()
    with pytest.raises(MpsError):
        add_fault(tmp_path, ALICE, caused(1), clock=SystemClock())


def test_a_full_disk_still_takes_a_fault_and_keeps_the_last_ones(tmp_path: Path) -> None:
    with small_disk(tmp_path / "run", "size=1m,nr_inodes=200") as run:
        for job in range(MOST):
            add_fault(run, ALICE, caused(job), clock=SystemClock())
        SpareFiles(run).fill()
        fill(run)
        for job in (MOST, MOST + 1):
            add_fault(run, ALICE, caused(job), clock=SystemClock())
            assert faults_of(run, ALICE)[-1] == caused(job)
        add_fault(run, ALICE, caused(7, certain=False), clock=SystemClock())
        kept = faults_of(run, ALICE)
        assert caused(MOST + 1) in kept and caused(7, certain=False) in kept
        assert quarantine_of(kept, job_id=0, profile_key="cd", now_s=NOW_S) == Quarantine(
            until_s=NOW_S + LONGEST_S, all_jobs=True
        )
