"""Which tasks belong to a run that had no Prolog, and start nowhere."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from lab.bare_node import make_bare_node
from prolog import own_run
from prolog.own_run import SOON_S, of_an_earlier_job, without_prolog
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config.load import Config, load_config
from slurm_plugin.core.config.settings import Features
from slurm_plugin.core.files.preallocated import SpareFiles
from slurm_plugin.core.ledger.ended_runs import KEPT_S, EndedRun, EndedRuns
from slurm_plugin.core.ledger.job_file import JobFile
from slurm_plugin.core.ledger.store import boot_id
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.slurm.control import JobView
from slurm_plugin.slurm.node.hook_env import parse_indices

ALLOCATION = Allocation(
    job_id=7,
    user_id=os.getuid(),
    kind="shared",
    gpus=("GPU-0",),
    gpu_indices=(0,),
    booked_bytes=1,
    created_s=2.0,
    partition="gpu",
)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "run").mkdir()
    return load_config(make_bare_node(tmp_path, gpus=1, gpu_gib=10))


def refused(config: Config, shown: str = "", *, is_script: bool = True) -> bool:
    return without_prolog(7, config, {"SLURM_RESTART_COUNT": shown}, is_script=is_script)


def test_a_job_of_which_nothing_is_known_starts(config: Config) -> None:
    """Its Prolog ran before RAD was installed, or RAD is being removed."""
    assert not refused(config) and not refused(config, "3")


def test_a_run_after_the_last_epilog_starts_only_after_a_prolog(config: Config) -> None:
    ended = EndedRuns(Path(config.paths.run))
    ended.note(7, EndedRun(partition="gpu"))
    assert refused(config) and refused(config, is_script=False)
    ended.forget(7)
    assert not refused(config)


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "off"},
        {"mode": "observe"},
        {"features": Features(placement=False)},
        {"partitions": {}},
    ],
    ids=str,
)
def test_where_prologs_place_no_job_it_starts(config: Config, change: dict[str, object]) -> None:
    EndedRuns(Path(config.paths.run)).note(7, EndedRun(partition="gpu"))
    JobFile(Path(config.paths.run), 7).place({}, replace(ALLOCATION, user_id=4711), boot_id=boot_id())
    assert refused(config) and not refused(replace(config, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("allocation", "shown", "slurm", "is_script", "no"),
    [
        (ALLOCATION, "", 0, True, False),
        (ALLOCATION, "1", 1, True, True),
        (ALLOCATION, "3", 0, True, False),
        (ALLOCATION, "1", 1, False, False),
        (replace(ALLOCATION, restart=2), "1", 5, True, False),
        (replace(ALLOCATION, user_id=4711), "", 0, False, True),
        (replace(ALLOCATION, user_id=0), "", 0, True, False),
        (ALLOCATION, "\u0661", 1, True, True),
        (ALLOCATION, "no number", 9, True, False),
    ],
    ids=[
        "this run",
        "an earlier run",
        "a count of its submitter's",
        "a step, whose variables are its owner's",
        "a later run",
        "another owner's job of this id",
        "an owner that is not known",
        "digits of another script",
        "no number",
    ],
)
def test_a_file_names_its_run(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
    allocation: Allocation,
    shown: str,
    slurm: int,
    is_script: bool,
    no: bool,
) -> None:
    monkeypatch.setattr(own_run, "_restarts", lambda *_: slurm)
    JobFile(Path(config.paths.run), 7).place({}, allocation, boot_id=boot_id())
    assert refused(config, shown, is_script=is_script) == no


@pytest.mark.parametrize(
    ("shown", "slurm", "no"),
    [
        ("0", "0", False),
        ("1", "1", True),
        ("1", "0", False),
        ("1", "", False),
        ("", "1", False),
        ("no index", "1", False),
        ("0,1", "0,1", True),
    ],
    ids=[
        "this run",
        "an earlier job of this id, owner and size",
        "an index of its submitter's job",
        "Slurm does not answer",
        "no index",
        "no number",
        "more GPUs",
    ],
)
def test_a_file_names_its_gpus(
    config: Config, monkeypatch: pytest.MonkeyPatch, shown: str, slurm: str, no: bool
) -> None:
    monkeypatch.setattr(own_run, "_given_indices", lambda *_: parse_indices(slurm))
    JobFile(Path(config.paths.run), 7).place({}, ALLOCATION, boot_id=boot_id())
    task = {"SLURM_JOB_GPUS": shown}
    assert without_prolog(7, config, task, is_script=True) == no
    assert not without_prolog(7, config, task, is_script=False)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"partition": "gpu"}', "\xff"])
def test_a_damaged_word_keeps_no_job_from_starting(config: Config, text: str) -> None:
    ended = Path(config.paths.run) / "ended"
    ended.mkdir()
    (ended / "7").write_bytes(text.encode("latin-1"))
    assert not refused(config)


def test_a_run_over_is_recorded_although_nothing_can_be_written(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    run = Path(config.paths.run)
    (run / "ended").mkdir()
    file = JobFile(run, 7)
    file.place({}, ALLOCATION, boot_id=boot_id())
    assert not refused(config)
    monkeypatch.setattr(SpareFiles, "write", no_space)
    EndedRuns(run).note(7, EndedRun(partition="gpu", reported=False))
    assert EndedRuns(run).of_job(7) == EndedRun(partition="gpu")
    assert refused(config) and not file.exists()


def test_what_slurmd_has_forgotten_goes(config: Config) -> None:
    run = Path(config.paths.run)
    ended = EndedRuns(run)
    for job_id, age_s in ((7, KEPT_S - 60), (8, KEPT_S + 60)):
        ended.note(job_id, EndedRun(partition="gpu", reported=False))
        os.utime(run / "ended" / str(job_id), (1e9 - age_s,) * 2)
    ended.forget_old(now_s=1e9)
    assert (ended.of_job(7), ended.of_job(8)) == (EndedRun(partition="gpu", reported=False), None)


@pytest.mark.parametrize(
    ("age_s", "comment", "earlier"),
    [
        (SOON_S + 2, "rad2:shared:ask=4:0123", True),
        (SOON_S - 2, "rad2:shared:ask=4:0123", False),
        (0.0, "rad2:shared:ask=8:0123", True),
        (0.0, "", True),
        (0.0, None, False),
    ],
    ids=["long before", "this run's", "another booking", "no booking", "Slurm is silent"],
)
def test_a_record_is_of_an_earlier_job_if_it_is_old_or_books_what_this_job_does_not(
    config: Config, monkeypatch: pytest.MonkeyPatch, age_s: float, comment: str | None, earlier: bool
) -> None:
    """slurmctld lost its latest state and gives ids again; slurmd knows the id and runs no Prolog."""
    view = None if comment is None else JobView(job_id=7, user_id=0, state="RUNNING", comment=comment)
    monkeypatch.setattr(own_run, "_view", lambda *_: view)
    file = JobFile(Path(config.paths.run), 7)
    file.place({}, replace(ALLOCATION, created_s=SystemClock().monotonic_s() - age_s), boot_id=boot_id())
    assert of_an_earlier_job(file, 7, "4", config) == earlier
    file.remove()
    assert not of_an_earlier_job(file, 7, "4", config), "nothing is known of it"


@pytest.mark.parametrize(
    ("comment", "earlier"), [("rad2:whole:gpus=1:0123", False), ("rad2:shared:ask=4:0123", True)]
)
def test_a_record_of_a_whole_gpu_names_no_shards(
    config: Config, monkeypatch: pytest.MonkeyPatch, comment: str, earlier: bool
) -> None:
    """A user's job with the comment of another job is refused at once, and not requeued first."""
    view = JobView(job_id=7, user_id=0, state="RUNNING", comment=comment)
    monkeypatch.setattr(own_run, "_view", lambda *_: view)
    file = JobFile(Path(config.paths.run), 7)
    file.place({}, replace(ALLOCATION, created_s=SystemClock().monotonic_s()), boot_id=boot_id())
    assert of_an_earlier_job(file, 7, "0", config) == earlier
