from __future__ import annotations

from dataclasses import replace

import pytest

from epilog.recover import MOST_RESTARTS, recover
from slurm_plugin.core.config import PartitionConfig
from slurm_plugin.core.note import read_note
from slurm_plugin.core.records import Booking, Outcome, Recovery
from slurm_plugin.core.units import GIB
from slurm_plugin.core.wire import read_stamp, user_words
from slurm_plugin.slurm.control import JobChange, JobView
from slurm_plugin.slurm.hook_env import HookJob

KEY = b"k" * 32
JOB = HookJob(job_id=7, user_id=1000, group_id=1000, partition="gpu", seats=(0,))
PARTITION = PartitionConfig(collocate=True, shards_per_gpu=40, recovery_priority=4242)
OUTCOME = Outcome(kind="gpu-oom", pattern="pytorch", evidence="CUDA out of memory", peak_bytes=3 * GIB)
RECOVERY = Recovery(booking=Booking(kind="whole", recoveries=1), raise_priority=True, reason="why")


class FakeSlurm:
    """A job that is COMPLETING, and how Slurm changes it."""

    def __init__(self, version: tuple[int, int, int] = (22, 5, 8), **view: object) -> None:
        self.view = replace(
            JobView(job_id=7, user_id=1000, state="COMPLETING", comment="my words rad1:old"),
            **view,  # type: ignore[arg-type]
        )
        self.slurm_version = version
        self.calls: list[object] = []

    def version(self) -> tuple[int, int, int]:
        return self.slurm_version

    def config(self) -> dict[str, str]:
        return {"AuthInfo": "cred_expire=15"}

    def job(self, job_id: int) -> JobView | None:
        return self.view

    def requeue(self, job_id: int) -> None:
        self.calls.append("requeue")
        self.view = replace(self.view, restarts=self.view.restarts + 1)

    def update(self, job_id: int, change: JobChange) -> None:
        self.calls.append(change)


def apply(slurm: FakeSlurm, recovery: Recovery = RECOVERY) -> str:
    return recover(JOB, recovery, OUTCOME, PARTITION, slurm, restart=0, key=KEY)  # type: ignore[arg-type]


def test_requeue_first_and_then_one_update_with_everything() -> None:
    slurm = FakeSlurm()
    assert apply(slurm).startswith("runs again")
    assert slurm.calls[0] == "requeue" and len(slurm.calls) == 2
    change = slurm.calls[1]
    assert isinstance(change, JobChange)
    assert (change.gres, change.priority) == ("shard:40", 4242)
    booking = read_stamp(change.comment or "", user_id=1000, key=KEY)
    assert booking == RECOVERY.booking
    assert user_words(change.comment or "").startswith("my words")
    note = read_note(change.admin_comment or "")
    assert note is not None and (note.event, note.peak_bytes) == ("recovered", 3 * GIB)
    assert change.start_in_s is not None and change.start_in_s >= 5


def test_a_second_epilog_of_the_same_run_requeues_nothing_twice() -> None:
    slurm = FakeSlurm()
    apply(slurm)
    apply(slurm)
    assert slurm.calls.count("requeue") == 1
    assert slurm.calls[1] == slurm.calls[2]


@pytest.mark.parametrize(
    "view",
    [
        {"state": "RUNNING", "restarts": 1},
        {"state": "COMPLETING", "restarts": 2},
        {"state": "PENDING"},
        {"state": "CANCELLED"},
        {"requeue": False},
        {"batch": False},
        {"restarts": MOST_RESTARTS},
    ],
)
def test_when_nothing_is_touched(view: dict[str, object]) -> None:
    slurm = FakeSlurm(**view)  # type: ignore[arg-type]
    assert apply(slurm).startswith("not run again")
    assert slurm.calls == []


def test_later_versions_get_a_gpu_by_name() -> None:
    slurm = FakeSlurm((24, 11, 5))
    apply(slurm)
    change = slurm.calls[1]
    assert isinstance(change, JobChange) and change.gres == "gpu:1"


def test_an_escalated_rerun_asks_for_more_shards_and_no_priority() -> None:
    slurm = FakeSlurm()
    booking = Booking(kind="shared", memory_bytes=17 * GIB, recoveries=1)
    apply(slurm, Recovery(booking=booking, raise_priority=False, reason="why"))
    change = slurm.calls[1]
    assert isinstance(change, JobChange) and (change.gres, change.priority) == ("shard:17", None)
