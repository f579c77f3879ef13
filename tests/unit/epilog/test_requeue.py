from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import KEY, FakeSlurm, signed
from hypothesis import given
from hypothesis import strategies as st

from epilog.requeue import MOST_RESTARTS, requeue_next_attempt
from slurm_plugin.core.comments.admin_comment import Note, read_note
from slurm_plugin.core.comments.signed_comment import (
    read_signed_booking,
    signed_booking,
    user_words,
)
from slurm_plugin.core.config.load import GpuType, PartitionConfig
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.logs.events import EventKind, LogEvent
from slurm_plugin.core.records.node import Outcome, Recovery
from slurm_plugin.core.records.submission import Booking, RequestedTasks
from slurm_plugin.core.units import GIB
from slurm_plugin.slurm.control import JobChange, JobView
from slurm_plugin.slurm.node.hook_env import HookJob

JOB = HookJob(job_id=7, user_id=1000, group_id=1000, partition="gpu", gpu_indices=(0,))
PARTITION = PartitionConfig(collocate=True, shards_per_gpu=40)
OUTCOME = Outcome(kind="gpu-oom", pattern="pytorch", evidence="CUDA out of memory", peak_bytes=3 * GIB)
RECOVERY = Recovery(booking=Booking(kind="whole", recoveries=1), boost_priority=True, reason="why")


def completing(version: tuple[int, int, int] = (22, 5, 8), **more: object) -> FakeSlurm:
    """Return a Slurm with the job, which is COMPLETING unless said otherwise."""
    view = JobView(job_id=7, user_id=1000, state="COMPLETING", comment="my words rad2:old")
    return FakeSlurm(replace(view, **more), version=version, AuthInfo="cred_expire=15")  # type: ignore[arg-type]


def apply(slurm: FakeSlurm, recovery: Recovery = RECOVERY) -> LogEvent:
    return requeue_next_attempt(JOB, recovery, OUTCOME, PARTITION, slurm, restart=0, key=KEY)


def test_requeue_first_and_then_one_update_with_everything() -> None:
    slurm = completing()
    assert apply(slurm).kind == EventKind.RUNS_AGAIN
    assert slurm.reported[0] == (7, "requeue") and len(slurm.reported) == 2
    _, change = slurm.reported[1]
    assert isinstance(change, JobChange)
    assert (change.gres, change.nice) == ("shard:40", None), "radd boosts the priority, not the Epilog"
    booking = read_signed_booking(change.comment or "", user_id=1000, key=KEY)
    assert booking == replace(RECOVERY.booking, changed=True)
    assert user_words(change.comment or "").startswith("my words")
    note = read_note(change.admin_comment or "")
    assert note is not None
    assert (note.event, note.restart, note.peak_bytes, note.fault) == ("recovered", 1, 3 * GIB, "estimate")
    assert change.start_in_s is not None and change.start_in_s >= 5


@given(
    st.sampled_from(["COMPLETING", "FAILED", "OUT_OF_MEMORY", "PENDING", "RUNNING", "CANCELLED"]),
    st.integers(0, 3),
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1000, 1001]),
)
def test_only_the_run_that_ended_is_requeued_and_only_once(
    state: str, restarts: int, restart: int, batch: bool, requeue: bool, user_id: int
) -> None:
    """A job is changed only while it is the run that ended, or its rerun that has not started."""
    slurm = completing(state=state, restarts=restarts, batch=batch, requeue=requeue, user_id=user_id)  # type: ignore[arg-type]
    event = requeue_next_attempt(JOB, RECOVERY, OUTCOME, PARTITION, slurm, restart=restart, key=KEY)
    may_requeue = batch and requeue and user_id == JOB.user_id
    ends = may_requeue and restarts == restart and state in ("COMPLETING", "FAILED", "OUT_OF_MEMORY")
    waits = may_requeue and restarts == restart + 1 and state in ("COMPLETING", "PENDING")
    kinds = [change if change == "requeue" else "update" for _, change in slurm.reported]
    assert kinds == ["requeue"] * ends + ["update"] * (ends or waits)
    assert (event.kind == EventKind.RUNS_AGAIN) == (ends or waits)


def test_a_second_epilog_of_the_same_run_requeues_nothing_twice() -> None:
    slurm = completing()
    apply(slurm)
    apply(slurm)
    assert slurm.reported.count((7, "requeue")) == 1
    assert slurm.reported[1] == slurm.reported[2]


@pytest.mark.parametrize(
    "view",
    [
        {"state": "RUNNING", "restarts": 1},
        {"state": "COMPLETING", "restarts": 2},
        {"state": "PENDING"},
        {"state": "CANCELLED"},
        {"requeue": False},
        {"batch": False},
    ],
)
def test_when_nothing_is_touched(view: dict[str, object]) -> None:
    slurm = completing(**view)  # type: ignore[arg-type]
    assert apply(slurm).kind == EventKind.NOT_RUN_AGAIN
    assert slurm.reported == []


@pytest.mark.parametrize(("restarts", "again"), [(MOST_RESTARTS - 1, True), (MOST_RESTARTS, False)])
def test_a_job_that_was_restarted_too_often_stays_where_it_is(restarts: int, again: bool) -> None:
    slurm = completing(restarts=restarts)
    event = requeue_next_attempt(JOB, RECOVERY, OUTCOME, PARTITION, slurm, restart=restarts, key=KEY)
    assert (event.kind == EventKind.RUNS_AGAIN) == again == bool(slurm.reported)
    assert again or "restarted 20 times" in event.detail


def test_a_job_that_slurm_forgot_is_not_run_again() -> None:
    slurm = FakeSlurm(AuthInfo="cred_expire=15")
    assert apply(slurm).kind == EventKind.NOT_RUN_AGAIN and slurm.reported == []


@pytest.mark.parametrize(("gives", "fault"), [(True, "estimate"), (False, None)])
@pytest.mark.parametrize(("version", "note_s", "start_s"), [((22, 5, 8), 18, 18), ((24, 11, 5), 3, 5)])
def test_the_note_requests_priority_only_where_it_is_due_and_the_delay_that_the_node_needs(
    gives: bool, fault: str | None, version: tuple[int, int, int], note_s: int, start_s: int
) -> None:
    slurm = completing(version)
    apply(slurm, replace(RECOVERY, boost_priority=gives))
    change = slurm.reported[1][1]
    assert isinstance(change, JobChange) and change.start_in_s == start_s
    note = read_note(change.admin_comment or "")
    assert note is not None and (note.fault, note.start_in_s) == (fault, note_s)


def test_later_versions_get_a_gpu_by_name() -> None:
    slurm = completing((24, 11, 5))
    apply(slurm)
    _, change = slurm.reported[1]
    assert isinstance(change, JobChange) and change.gres == "gpu:1"


def test_an_escalated_rerun_requests_more_shards_and_no_priority() -> None:
    slurm = completing()
    booking = Booking(kind="shared", memory_bytes=17 * GIB, recoveries=1)
    apply(slurm, Recovery(booking=booking, boost_priority=False, reason="why"))
    _, change = slurm.reported[1]
    assert isinstance(change, JobChange) and (change.gres, change.nice) == ("shard:17", None)


@pytest.mark.parametrize(
    ("memory_gib", "requested", "per_task"),
    [
        (None, "gres/shard:10", "gres/shard:40"),
        (12, "cpu=2,gres/shard:10", "cpu=2,gres/shard:12"),
        (8, "cpu=2,gres/shard:10", "cpu=2,gres/shard:10"),  # the other two stand for its compute
    ],
)
def test_a_job_that_requests_by_task_gets_more_of_each_of_its_gpus(
    memory_gib: int | None, requested: str, per_task: str
) -> None:
    slurm = completing((24, 11, 5), gres=requested)  # type: ignore[arg-type]
    memory_bytes = None if memory_gib is None else memory_gib * GIB
    booking = Booking(
        kind="whole" if memory_bytes is None else "shared",
        gpus=2,
        memory_bytes=memory_bytes,
        shards=20,
        by_task=RequestedTasks(),
        recoveries=1,
    )
    apply(slurm, replace(RECOVERY, booking=booking))
    change = slurm.reported[1][1]
    assert isinstance(change, JobChange)
    assert (change.gres, change.per_task) == (None, per_task)
    signed = read_signed_booking(change.comment or "", user_id=1000, key=KEY)
    assert signed is not None and (signed.gpus, signed.by_task) == (2, RequestedTasks())


def test_a_victim_runs_again_as_it_was() -> None:
    slurm = completing()
    booking = Booking(kind="whole", gpus=2)
    recovery = Recovery(booking=booking, boost_priority=True, reason="lost")
    requeue_next_attempt(
        JOB, recovery, Outcome(kind="victim", culprit=8), PARTITION, slurm, restart=0, key=KEY
    )
    _, change = slurm.reported[1]
    assert isinstance(change, JobChange) and (change.gres, change.comment) == (None, None)
    note = read_note(change.admin_comment or "")
    assert note is not None and (note.event, note.fault) == ("recovered", "victim")


@pytest.mark.parametrize("ends", [0, 1])
def test_a_job_whose_server_ended_gets_one_of_its_own_and_the_same_request(ends: int) -> None:
    requested = Booking(kind="shared", memory_bytes=6 * GIB, cap_bytes=9 * GIB, shards=6, profile_key="ab")
    comment = f"my words {signed_booking(requested, user_id=1000, key=KEY)}"
    slurm = completing(comment=comment)  # type: ignore[arg-type]
    recovery = Recovery(booking=replace(requested, memory_bytes=GIB), boost_priority=False, reason="requeued")
    outcome = Outcome(kind="victim", server_ends=ends)
    event = requeue_next_attempt(JOB, recovery, outcome, PARTITION, slurm, restart=0, key=KEY)
    assert event.detail == ("requeued for a server of its own" if ends else "requeued")
    _, change = slurm.reported[1]
    assert isinstance(change, JobChange) and (change.gres, change.per_task) == (None, None)
    if not ends:
        assert change.comment is None
        return
    assert change.comment is not None and user_words(change.comment) == "my words"
    assert read_signed_booking(change.comment, user_id=1000, key=KEY) == replace(requested, own_server=True)


@pytest.mark.parametrize("user_id", [None, 1001], ids=["none", "another user's"])
def test_without_a_signed_booking_its_comment_is_left_alone(user_id: int | None) -> None:
    comment = "" if user_id is None else signed_booking(Booking(kind="shared"), user_id=user_id, key=KEY)
    slurm = completing(comment=comment)  # type: ignore[arg-type]
    recovery = Recovery(booking=Booking(kind="shared"), boost_priority=False, reason="requeued")
    outcome = Outcome(kind="victim", server_ends=1)
    event = requeue_next_attempt(JOB, recovery, outcome, PARTITION, slurm, restart=0, key=KEY)
    _, change = slurm.reported[1]
    assert isinstance(change, JobChange) and (event.detail, change.comment) == ("requeued", None)


@pytest.mark.parametrize(
    ("before", "outcome", "reported"),
    [
        ("", Outcome(kind="victim", server_ends=1), 1),
        (signed(Note(event="requeued", server_ends=1)), Outcome(kind="victim", server_ends=2), 2),
        (signed(Note(event="recovered", server_ends=2)), Outcome(kind="victim", culprit=8), 2),
        (signed(Note(event="woken")), Outcome(kind="victim", culprit=8), None),
        ("rad: recovered restart=1 server_ends=2", Outcome(kind="victim", culprit=8), None),
        (signed(Note(event="recovered", server_ends=2), job_id=8), Outcome(kind="victim", culprit=8), None),
    ],
    ids=["the first", "another", "for a neighbour in between", "none yet", "not signed", "another job's"],
)
def test_reruns_for_an_mps_server_are_counted_across_all_others(
    before: str, outcome: Outcome, reported: int | None
) -> None:
    slurm = completing()
    slurm.views[7] = replace(slurm.views[7], admin_comment=before)
    recovery = Recovery(booking=Booking(kind="whole"), boost_priority=False, reason="lost")
    requeue_next_attempt(JOB, recovery, outcome, PARTITION, slurm, restart=0, key=KEY)
    _, change = slurm.reported[1]
    assert isinstance(change, JobChange)
    note = read_note(change.admin_comment or "")
    assert note is not None and note.server_ends == reported


MIXED = PartitionConfig(
    collocate=True, gpus={"a100": GpuType(shards_per_gpu=39), "h200": GpuType(shards_per_gpu=138)}
)
SHARE = Recovery(booking=Booking(kind="shared", memory_bytes=20 * GIB), boost_priority=False, reason="why")
FULL = Recovery(booking=Booking(kind="shared", memory_bytes=39 * GIB), boost_priority=False, reason="why")
LARGE = Recovery(booking=Booking(kind="shared", memory_bytes=50 * GIB), boost_priority=False, reason="why")


@pytest.mark.parametrize(
    ("version", "had", "recovery", "least_gib", "gets"),
    [
        ((24, 11, 5), "gres/shard:10", RECOVERY, 12, "gpu:1"),
        ((24, 11, 5), "gres/shard:38", RECOVERY, 45, "gpu:h200:1"),
        ((24, 11, 5), "gres/shard:a100:10", RECOVERY, 12, "gpu:a100:1"),
        ((22, 5, 8), "gres:shard:h200:10", RECOVERY, 12, "shard:h200:138"),
        ((22, 5, 8), "gres:shard:10", RECOVERY, 12, "shard:39"),
        ((22, 5, 8), "gres:shard:38", RECOVERY, 45, "shard:138"),
        ((22, 5, 8), "gres:shard:a100:10", SHARE, 12, "shard:a100:20"),
        ((22, 5, 8), "gres:shard:10", LARGE, 45, "shard:50"),
        ((24, 11, 5), "gres/shard:a100:30", LARGE, 35, "gpu:a100:1"),  # an a100 has no 50 shards
        ((24, 11, 5), "gres/gpu:a100:1", RECOVERY, 45, None),
        ((24, 11, 5), "gres/shard:a100:10", RECOVERY, 39, "gpu:a100:1"),  # exactly what one has
        ((24, 11, 5), "gres/shard:a100:10", FULL, 35, "gpu:a100:1"),
    ],
)
def test_a_rerun_keeps_its_type_and_gets_a_gpu_that_is_large_enough(
    version: tuple[int, int, int], had: str, recovery: Recovery, least_gib: int, gets: str | None
) -> None:
    slurm = completing(version, gres=had)
    outcome = replace(OUTCOME, peak_bytes=(least_gib - 2) * GIB, attempted_bytes=2 * GIB)
    event = requeue_next_attempt(JOB, recovery, outcome, MIXED, slurm, restart=0, key=KEY)
    assert event.kind == (EventKind.NOT_RUN_AGAIN if gets is None else EventKind.RUNS_AGAIN)
    changes = [change for _, change in slurm.reported if isinstance(change, JobChange)]
    assert [change.gres for change in changes] == ([] if gets is None else [gets])
    for change in changes:
        booking = read_signed_booking(change.comment or "", user_id=1000, key=KEY)
        assert booking is not None
        assert booking.kind == ("shared" if gets in ("shard:a100:20", "shard:50") else "whole")


class Deaf(FakeSlurm):
    """A Slurm that takes jobs back and no change of them."""

    def update(self, job_id: int, change: JobChange) -> None:
        super().update(job_id, change)
        raise SlurmError("Access/permission denied")


@pytest.mark.parametrize(("outcome", "updates"), [(Outcome(kind="victim"), 1), (OUTCOME, 2)])
def test_a_change_without_a_request_is_not_tried_again_with_less(outcome: Outcome, updates: int) -> None:
    view = JobView(job_id=7, user_id=1000, state="COMPLETING", comment="rad2:old")
    slurm = Deaf(view, version=(24, 11, 5))
    with pytest.raises(SlurmError):
        requeue_next_attempt(JOB, RECOVERY, outcome, PARTITION, slurm, restart=0, key=KEY)
    assert len(slurm.reported) == 1 + updates, "a requeue, and so many changes"


class Refusing(FakeSlurm):
    """A Slurm that takes no other GRES for the job."""

    def update(self, job_id: int, change: JobChange) -> None:
        if change.gres is not None:
            raise SlurmError("Invalid GRES specification")
        super().update(job_id, change)


def test_a_request_that_slurm_refuses_is_counted_all_the_same() -> None:
    """Seen: a job ran out of memory, was requeued, kept its request and its count, and did so five times over."""
    view = JobView(job_id=7, user_id=1000, state="COMPLETING", comment="rad2:old")
    slurm = Refusing(view, version=(22, 5, 8), AuthInfo="cred_expire=15")
    event = apply(slurm)
    assert event.kind == EventKind.RUNS_AGAIN and "Invalid GRES specification" in event.detail
    (_, _), (_, change) = slurm.reported
    assert isinstance(change, JobChange) and change.gres is None
    booking = read_signed_booking(change.comment or "", user_id=1000, key=KEY)
    assert booking is not None and (booking.recoveries, booking.changed) == (1, True)


def test_a_slurm_that_does_not_answer_gets_no_smaller_request() -> None:
    slurm = completing()
    slurm.answers = False
    with pytest.raises(SlurmError):
        apply(slurm)
