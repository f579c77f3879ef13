"""A job goes back into the queue: what Slurm is to do, what its tasks find, few delays by RAD's own faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import KEY, FakeClock, FakeSlurm, signed

from lab.bare_node import make_bare_node
from prolog.requeue import FIRST_DELAY_S, LONGEST_DELAY_S, MOST_FOR_FAULTS, may_requeue, requeue
from slurm_plugin.core.comments.admin_comment import Note, format_note, read_note
from slurm_plugin.core.config.load import load_config
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.ledger.requeued_jobs import RequeuedJob, waiting_jobs
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.records.queue_position import QueuePosition
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.control import JobChange, JobView, Standing
from slurm_plugin.slurm.node.hook_env import HookJob

WHY = "no idle GPU for a whole-GPU job"
NEW, OLD = (24, 11, 5), (22, 5, 8)


class NoUpdates(FakeSlurm):
    """Takes jobs back, and no change of them."""

    def update(self, job_id: int, change: JobChange) -> None:
        raise SlurmError("Access/permission denied")


def node_of(folder: Path, slurm: FakeSlurm) -> Node:
    node = Node.here(load_config(make_bare_node(folder, gpus=1, gpu_gib=10)), {})
    (folder / "run").mkdir()
    Path(node.config.paths.key).write_bytes(KEY)
    Path(node.config.paths.key).chmod(0o600)
    return replace(node, slurm=lambda: slurm, clock=FakeClock())  # type: ignore[arg-type, return-value]


def job(restart: int = 0) -> HookJob:
    return HookJob(job_id=7, user_id=1000, group_id=1000, restart=restart)


def running(
    version: tuple[int, int, int] = NEW, kind: type[FakeSlurm] = FakeSlurm, **config: str
) -> FakeSlurm:
    return kind(JobView(job_id=7, user_id=1000, state="RUNNING"), version=version, **config)


@pytest.mark.parametrize(
    ("version", "auth", "restart", "delay_s", "earliest_s"),
    [
        (NEW, "(null)", 0, FIRST_DELAY_S, 3),
        (NEW, "(null)", 1, 2 * FIRST_DELAY_S, 3),
        (NEW, "(null)", 4, LONGEST_DELAY_S, 3),
        (NEW, "(null)", 4000, LONGEST_DELAY_S, 3),
        (OLD, "(null)", 0, 123, 123),
        (OLD, "cred_expire=15", 0, 18, 18),
        (OLD, "cred_expire=15", 4, LONGEST_DELAY_S, 18),
    ],
)
def test_it_waits_twice_as_long_each_time_but_never_less_than_its_node_needs(
    tmp_path: Path, version: tuple[int, int, int], auth: str, restart: int, delay_s: int, earliest_s: int
) -> None:
    slurm = running(version, AuthInfo=auth)
    node = node_of(tmp_path, slurm)
    event = requeue(node, job(restart), WHY, refuse=False)
    note = Note(event="requeued", start_in_s=delay_s, restart=restart + 1, detail=WHY)
    assert slurm.reported == [(7, "requeue"), (7, JobChange(start_in_s=delay_s, admin_comment=signed(note)))]
    assert (event.kind, event.detail, event.facts) == (EventKind.REQUEUED, WHY, {"start_in_s": delay_s})
    wakes = RequeuedJob(job_id=7, earliest_s=node.clock.now_s() + earliest_s, restart=restart + 1)
    assert waiting_jobs(tmp_path / "run") == (wakes,), "the next Epilog may wake it by then"
    assert node.job_file(7).refusal() is None


def test_a_job_that_slurm_does_not_take_back_runs_unless_that_would_hurt_another(tmp_path: Path) -> None:
    node = node_of(tmp_path, FakeSlurm(version=NEW))
    event = requeue(node, job(), WHY, refuse=False)
    assert event.kind == EventKind.NOT_REQUEUED and event.detail.startswith(f"{WHY}; ")
    assert (waiting_jobs(tmp_path / "run"), node.job_file(7).refusal()) == ((), None)
    assert requeue(node, job(), WHY, refuse=True).kind == EventKind.NOT_REQUEUED
    assert node.job_file(7).refusal() == WHY, "its tasks do not start"


def test_a_job_must_not_start_while_it_is_on_its_way_back(tmp_path: Path) -> None:
    node = node_of(tmp_path, running())
    assert requeue(node, job(), WHY, refuse=True).kind == EventKind.REQUEUED
    assert node.job_file(7).refusal() == WHY


HERE = Standing(
    job_id=7,
    user_id=1000,
    state="COMPLETING",
    priority=900,
    nice=100,
    restarts=1,
    submitted_s=5000,
    accrues_s=6000,
)
POSITION = QueuePosition(submitted_s=5000, accrues_s=6000, priority=1000, nice=100)
FIRST = Note(event="requeued", restart=1, position=POSITION)


@pytest.mark.parametrize(
    ("seen", "restart", "position"),
    [
        (None, 0, None),
        (HERE, 0, POSITION),
        (replace(HERE, state="PENDING"), 0, None),
        (replace(HERE, admin_comment="rad: booked"), 0, POSITION),
        (
            replace(HERE, submitted_s=9000, admin_comment=format_note(FIRST)),
            1,
            replace(POSITION, submitted_s=9000),
        ),
        (replace(HERE, submitted_s=9000, admin_comment=signed(FIRST)), 1, POSITION),
        (
            replace(HERE, submitted_s=9000, admin_comment=signed(FIRST)),
            2,
            replace(POSITION, submitted_s=9000),
        ),
    ],
    ids=[
        "Slurm forgot it",
        "unchanged",
        "it has new times by now",
        "its first run",
        "a note that is not signed",
        "again",
        "it ran since",
    ],
)
def test_the_note_shows_where_it_was(
    tmp_path: Path, seen: Standing | None, restart: int, position: QueuePosition | None
) -> None:
    slurm = running()
    if seen is not None:
        slurm.places[7] = seen
    requeue(node_of(tmp_path, slurm), job(restart), WHY, refuse=False)
    change = slurm.reported[-1][1]
    assert isinstance(change, JobChange)
    note = read_note(change.admin_comment or "")
    assert note is not None and note.position == position


def test_a_delay_that_slurm_refuses_is_slurms_own(tmp_path: Path) -> None:
    slurm = running(kind=NoUpdates)
    event = requeue(node_of(tmp_path, slurm), job(), WHY, refuse=False)
    assert event.kind == EventKind.REQUEUED and "Slurm's default delay" in event.detail
    assert slurm.reported == [(7, "requeue")] and waiting_jobs(tmp_path / "run") == ()


def test_a_fault_of_rads_delays_a_job_a_few_times_at_most() -> None:
    assert [may_requeue(job(restart)) for restart in range(MOST_FOR_FAULTS + 2)] == [
        *MOST_FOR_FAULTS * [True],
        False,
        False,
    ]


def test_a_job_goes_back_although_its_refusal_cannot_be_written(tmp_path: Path) -> None:
    """Else it would run next to the holder of its GPU."""
    slurm = running()
    node = node_of(tmp_path, slurm)
    (tmp_path / "run" / "placed").write_text("no folder")
    assert requeue(node, job(), WHY, refuse=True).kind == EventKind.REQUEUED
    assert slurm.reported[0] == (7, "requeue")
