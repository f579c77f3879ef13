"""What an ended job leaves in its AdminComment, through a stand-in for sacctmgr."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import KEY

from epilog.notes import peak_note, reason_note, write_note
from epilog.run_record import run_of
from slurm_plugin.core.comments.admin_comment import read_note
from slurm_plugin.core.history.runs import from_line, to_line
from slurm_plugin.core.records.node import Outcome
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.monitor.window import JobUsage
from slurm_plugin.slurm.files.conf_files import has_slurmdbd
from slurm_plugin.slurm.node.hook_env import HookJob
from slurm_plugin.slurm.queries import accounting

JOB = HookJob(job_id=71, user_id=1000, group_id=1000)
MIB = 1 << 20


@pytest.fixture
def reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file in which a stand-in for sacctmgr writes its arguments."""
    words = tmp_path / "words"
    monkeypatch.setattr(
        accounting,
        "spawn_daemon",
        lambda argv, *, env, log_path, uid, gid: words.write_text(
            "\n".join([*argv, env.get("SLURM_CONF", "")])
        ),
    )
    return words


@pytest.mark.parametrize(
    ("kind", "recoveries", "event"), [("ok", 0, "ended"), ("failed", 0, "failed"), ("ok", 1, "ended")]
)
def test_estimate_and_peak_are_reported(
    reported: Path, tmp_path: Path, kind: str, recoveries: int, event: str
) -> None:
    booking = Booking(
        kind="shared", memory_bytes=4096 * MIB, estimate_bytes=3000 * MIB, recoveries=recoveries
    )
    outcome = Outcome(kind=kind, peak_bytes=2900 * MIB)  # type: ignore[arg-type]
    usage = JobUsage(job_id=71, first_s=0.0, last_s=1.0, own_smact=0.414, own_samples=600)
    (tmp_path / "slurm.conf").touch()
    noted = peak_note(JOB, booking, outcome, usage)
    assert noted is not None
    write_note(JOB, noted, slurm_conf=tmp_path / "slurm.conf", log=tmp_path, key=KEY)
    *argv, conf = reported.read_text().splitlines()
    assert argv[:7] == ["sacctmgr", "-iQ", "modify", "job", "where", "jobid=71", "set"]
    assert conf == str(tmp_path / "slurm.conf")
    note = read_note(argv[7].removeprefix("AdminComment="))
    assert note is not None
    assert (note.event, note.estimate_bytes, note.peak_bytes) == (event, 3000 * MIB, 2900 * MIB)
    assert note.smact == (0.41 if kind == "ok" else None)
    assert ("recovered" in note.detail) == bool(recoveries)


def test_an_unwatched_job_shows_nothing() -> None:
    assert peak_note(JOB, Booking(kind="whole"), Outcome(kind="ok"), None) is None


@pytest.mark.parametrize(
    ("kind", "recoveries", "detail"),
    [
        ("gpu-oom", 1, "not requeued again: out of GPU memory"),
        ("failed", 1, "not requeued again: out of GPU memory"),
        ("overrun", 0, "stopped: out of GPU memory"),
        ("idle", 1, "not requeued again: stopped: out of GPU memory"),
    ],
)
def test_the_note_of_a_job_that_failed_for_good_promises_no_rerun(
    kind: str, recoveries: int, detail: str
) -> None:
    outcome = Outcome(kind=kind, evidence="out of GPU memory")  # type: ignore[arg-type]
    booking = Booking(kind="whole", recoveries=recoveries)
    note = reason_note(JOB, booking, outcome)
    assert (note.event, note.detail) == ("failed", detail)


def test_the_database_is_seen_in_slurm_conf(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    assert not has_slurmdbd(None) and not has_slurmdbd(conf)
    conf.write_text("#AccountingStorageType=accounting_storage/slurmdbd\n")
    assert not has_slurmdbd(conf)
    conf.write_text("accountingstoragetype = accounting_storage/slurmdbd # a comment\n")
    assert has_slurmdbd(conf)


@pytest.mark.parametrize(
    ("kind", "samples", "reported"), [("ok", 60, 0.41), ("ok", 59, None), ("failed", 600, None)]
)
def test_activity_is_learned_of_whole_runs_that_were_seen_for_a_minute(
    kind: str, samples: int, reported: float | None
) -> None:
    booking = Booking(kind="shared", memory_bytes=4096 * MIB, profile_key="ab12")
    outcome = Outcome(kind=kind, peak_bytes=2900 * MIB)  # type: ignore[arg-type]
    usage = JobUsage(job_id=71, first_s=0.0, last_s=1.0, own_smact=0.41, own_samples=samples)
    run = from_line(to_line(run_of(JOB, booking, outcome, usage, now_s=5.0)))
    assert run is not None and run.smact == reported


@pytest.mark.parametrize(
    ("kind", "corroborated", "learned", "missed"),
    [
        ("ok", False, "ab", None),
        ("gpu-oom", True, None, "ab"),
        ("gpu-oom", False, None, None),  # its output may say anything
        ("overrun", True, None, "ab"),
        ("failed", False, None, None),
    ],
)
def test_a_run_shows_a_need_or_that_it_missed(
    kind: str, corroborated: bool, learned: str | None, missed: str | None
) -> None:
    booking = Booking(kind="shared", memory_bytes=4096 * MIB, profile_key="ab")
    outcome = Outcome(kind=kind, peak_bytes=4000 * MIB, corroborated=corroborated)  # type: ignore[arg-type]
    run = from_line(to_line(run_of(JOB, booking, outcome, None, now_s=5.0)))
    assert run is not None and (run.profile_key, run.missed_key) == (learned, missed)
