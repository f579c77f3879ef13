"""What an ended job leaves in its AdminComment, through a stand-in for sacctmgr."""

from __future__ import annotations

from pathlib import Path

import pytest

from epilog.report import tell_peak
from slurm_plugin.core.note import read_note
from slurm_plugin.core.records import Booking, Outcome
from slurm_plugin.slurm import accounting
from slurm_plugin.slurm.conf_files import has_slurmdbd
from slurm_plugin.slurm.hook_env import HookJob

JOB = HookJob(job_id=71, user_id=1000, group_id=1000)
MIB = 1 << 20


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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
def test_estimate_and_peak_are_told(
    told: Path, tmp_path: Path, kind: str, recoveries: int, event: str
) -> None:
    booking = Booking(
        kind="shared", memory_bytes=4096 * MIB, estimate_bytes=3000 * MIB, recoveries=recoveries
    )
    outcome = Outcome(kind=kind, peak_bytes=2900 * MIB)  # type: ignore[arg-type]
    tell_peak(JOB, booking, outcome, slurm_conf=tmp_path / "slurm.conf", log=tmp_path)
    *argv, conf = told.read_text().splitlines()
    assert argv[:7] == ["sacctmgr", "-iQ", "modify", "job", "where", "jobid=71", "set"]
    assert conf == str(tmp_path / "slurm.conf")
    note = read_note(argv[7].removeprefix("AdminComment="))
    assert note is not None
    assert (note.event, note.estimate_bytes, note.peak_bytes) == (event, 3000 * MIB, 2900 * MIB)
    assert ("recovered" in note.detail) == bool(recoveries)


def test_a_job_that_nobody_watched_tells_nothing(told: Path, tmp_path: Path) -> None:
    tell_peak(JOB, Booking(kind="whole"), Outcome(kind="ok"), slurm_conf=None, log=tmp_path)
    assert not told.exists()


def test_the_database_is_seen_in_slurm_conf(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    assert not has_slurmdbd(None) and not has_slurmdbd(conf)
    conf.write_text("#AccountingStorageType=accounting_storage/slurmdbd\n")
    assert not has_slurmdbd(conf)
    conf.write_text("accountingstoragetype = accounting_storage/slurmdbd # ours\n")
    assert has_slurmdbd(conf)
