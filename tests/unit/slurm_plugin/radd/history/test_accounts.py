from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import pytest
from fakes import FakeClock, signed

from slurm_plugin.core.booking.verification import partition_mark
from slurm_plugin.core.comments import signed_comment
from slurm_plugin.core.comments.admin_comment import Note, NoteEvent
from slurm_plugin.core.config.load import Config, Features, PartitionConfig, Paths
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.history.runs import Run, from_line
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.units import GIB
from slurm_plugin.radd.history.accounts import AGAIN_S, EVERY_S, FIRST_S, MOST_S, AccountsReader
from slurm_plugin.radd.history.peaks import PeakHistory
from slurm_plugin.slurm.queries.accounting import Accounts, EndedJob

KEY = bytes(32)
PROFILE = "ab12cd34"


class FakeAccounts(Accounts):
    """A database of jobs."""

    def __init__(self) -> None:
        super().__init__(None)
        self.jobs: dict[int, tuple[EndedJob, str]] = {}
        self.queried_from_s: list[int] = []
        self.comments_queried: list[tuple[int, ...]] = []
        self.answers = True

    def ended(
        self,
        job_id: int,
        *,
        user_id: int = 1000,
        event: NoteEvent = "ended",
        peak_bytes: int = 10 * GIB,
        comment: str = "",
    ) -> None:
        text = signed(
            Note(event=event, peak_bytes=peak_bytes, smact=0.41, ran_s=90), job_id=job_id, user_id=user_id
        )
        self.jobs[job_id] = (
            EndedJob(job_id=job_id, user_id=user_id, admin_comment=text),
            comment or booked_comment(),
        )

    def completed(self, last_s: int) -> tuple[EndedJob, ...]:
        if not self.answers:
            raise SlurmError("sacct: error: Unable to contact slurmdbd")
        self.queried_from_s.append(last_s)
        return tuple(job for job, _ in self.jobs.values())

    def comments(self, job_ids: Iterable[int]) -> dict[int, str]:
        ids = tuple(job_ids)
        self.comments_queried.append(ids)
        return {job_id: self.jobs[job_id][1] for job_id in ids}


def booked_comment(user_id: int = 1000) -> str:
    booking = Booking(
        kind="shared",
        memory_bytes=12 * GIB,
        estimate_bytes=11 * GIB,
        profile_key=PROFILE,
        partitions=(partition_mark("gpu"),),
    )
    return signed_comment.with_signed_booking(
        "my words", signed_comment.signed_booking(booking, user_id=user_id, key=KEY)
    )


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "key").chmod(0o600)
    return Config(paths=Paths(key=str(tmp_path / "key")))


@pytest.fixture
def peaks(tmp_path: Path) -> PeakHistory:
    return PeakHistory(tmp_path / "peaks.jsonl")


def peak_bytes(peaks: PeakHistory, user_id: int = 1000) -> int | None:
    peaks.refresh()
    known = peaks.seen(user_id, PROFILE)
    return None if known is None else known.peak_bytes


def test_a_peak_in_the_accounts_is_learned_once(config: Config, peaks: PeakHistory, tmp_path: Path) -> None:
    accounts = FakeAccounts()
    reader = AccountsReader(accounts, peaks, lambda: config)
    accounts.ended(7)
    reader.learn()
    reader.learn()
    assert peak_bytes(peaks) == 10 * GIB
    assert (known := peaks.seen(1000, PROFILE)) is not None and known.smact == 0.41
    assert accounts.queried_from_s == [FIRST_S, AGAIN_S]
    assert accounts.comments_queried == [(7,)]
    AccountsReader(accounts, peaks, lambda: config).learn()  # radd starts again
    assert len((tmp_path / "peaks.jsonl").read_text().splitlines()) == 1


def test_a_bug_over_one_job_keeps_no_other_from_being_learned(
    config: Config, peaks: PeakHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job stays in the accounts, and so did the bug, round after round."""
    accounts, remembered = FakeAccounts(), peaks.record

    def trips_over_the_first(run: Run) -> None:
        if run.job_id == 7:
            raise ZeroDivisionError("a bug")
        remembered(run)

    monkeypatch.setattr(peaks, "record", trips_over_the_first)
    reader = AccountsReader(accounts, peaks, lambda: config)
    accounts.ended(7)
    accounts.ended(8)
    with pytest.raises(ZeroDivisionError):
        reader.learn()
    reader.learn()
    assert peak_bytes(peaks) == 10 * GIB


def test_a_run_in_the_accounts_shows_all_that_the_site_learns_from(
    config: Config, peaks: PeakHistory, tmp_path: Path
) -> None:
    accounts, partitions = FakeAccounts(), {"gpu": PartitionConfig(), "other": PartitionConfig()}
    accounts.ended(7)
    clock = FakeClock(1e9)
    AccountsReader(accounts, peaks, lambda: dataclasses.replace(config, partitions=partitions), clock).learn()
    run = from_line((tmp_path / "peaks.jsonl").read_bytes())
    assert run is not None
    assert (run.partition, run.start_s, run.time_s, run.estimate_bytes) == ("gpu", 1e9 - 90, 1e9, 11 * GIB)


def test_a_job_whose_epilog_has_not_written_yet_is_looked_at_again(
    config: Config, peaks: PeakHistory
) -> None:
    accounts = FakeAccounts()
    reader = AccountsReader(accounts, peaks, lambda: config)
    accounts.ended(7, event="booked")
    reader.learn()
    assert peak_bytes(peaks) is None
    accounts.ended(7)
    reader.learn()
    assert peak_bytes(peaks) == 10 * GIB


def test_what_a_shared_folder_reported_already_is_not_counted_twice(
    config: Config, peaks: PeakHistory, tmp_path: Path
) -> None:
    line = f'{{"job": 7, "user": 1000, "profile": "{PROFILE}", "peak_bytes": {9 * GIB}}}\n'
    (tmp_path / "peaks.jsonl").write_text(line)
    peaks.refresh()
    accounts = FakeAccounts()
    accounts.ended(7)
    AccountsReader(accounts, peaks, lambda: config).learn()
    assert peak_bytes(peaks) == 9 * GIB


@pytest.mark.parametrize(
    "comment",
    ["none of RAD's", booked_comment(user_id=1001), booked_comment().replace("shared", "whole")],
    ids=["no booking", "a booking copied from another user", "a booking that was changed"],
)
def test_only_a_booking_of_rads_shows_the_model(config: Config, peaks: PeakHistory, comment: str) -> None:
    accounts = FakeAccounts()
    accounts.ended(7, comment=comment)
    AccountsReader(accounts, peaks, lambda: config).learn()
    assert peak_bytes(peaks) is None and peak_bytes(peaks, 1001) is None


def test_a_run_that_failed_shows_no_need(config: Config, peaks: PeakHistory) -> None:
    accounts = FakeAccounts()
    accounts.ended(7, event="failed")
    AccountsReader(accounts, peaks, lambda: config).learn()
    assert accounts.comments_queried == []


def test_without_history_slurm_is_not_queried(config: Config, peaks: PeakHistory) -> None:
    accounts = FakeAccounts()
    silent = dataclasses.replace(config, features=Features(history=False))
    AccountsReader(accounts, peaks, lambda: silent).learn()
    assert accounts.queried_from_s == []


def test_after_an_outage_it_looks_back_over_all_of_it(config: Config, peaks: PeakHistory) -> None:
    accounts, clock = FakeAccounts(), FakeClock()
    reader = AccountsReader(accounts, peaks, lambda: config, clock)
    reader.learn()
    clock.sleep(EVERY_S)
    reader.learn()
    accounts.answers = False
    for _ in range(100):
        clock.sleep(EVERY_S)
        with pytest.raises(SlurmError):
            reader.learn()
    accounts.answers = True
    reader.learn()
    clock.sleep(EVERY_S)
    reader.learn()
    clock.sleep(30 * MOST_S)
    reader.learn()
    assert accounts.queried_from_s == [FIRST_S, AGAIN_S, AGAIN_S + 98 * EVERY_S, AGAIN_S, MOST_S]
