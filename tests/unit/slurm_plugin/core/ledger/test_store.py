from __future__ import annotations

import os
import shutil
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeClock
from hypothesis import given, settings
from hypothesis import strategies as st
from small_disks import fill, small_disk

from slurm_plugin.core.clock import Deadline
from slurm_plugin.core.errors import LedgerError
from slurm_plugin.core.files.two_slots import SLOT_BYTES
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.ledger.store import LedgerStore, boot_id
from slurm_plugin.core.process.child import Child
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.core.units import GIB


def allocation(job_id: int) -> Allocation:
    return Allocation(
        job_id=job_id,
        user_id=1000,
        kind="shared",
        gpus=("GPU-0",),
        gpu_indices=(0,),
        booked_bytes=GIB,
        created_s=1.0,
    )


def ledger_of(*job_ids: int) -> Ledger:
    return Ledger(allocations=tuple(map(allocation, job_ids)))


def store_in(folder: Path, boot: str = "this-boot") -> LedgerStore:
    return LedgerStore(folder, clock=FakeClock(), boot_id=boot)


def jobs_in(folder: Path) -> list[int]:
    return [one.job_id for one in store_in(folder).read().ledger.allocations]


def deadline(seconds: float = 1.0) -> Deadline:
    return Deadline(FakeClock(), seconds)


def test_what_was_written_is_read_and_only_root_may(tmp_path: Path) -> None:
    for ledger in (ledger_of(1), ledger_of(1, 2), ledger_of(2)):
        store_in(tmp_path).write(ledger)
        found = store_in(tmp_path).read()
        assert (found.ledger, found.lost) == (ledger, False)
    assert stat.S_IMODE((tmp_path / "ledger").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "content", [None, b"", b"{", b"rad-ledger 1 1 0 0\n", b"rad-ledger x", b"\xff\xfe\x00"]
)
def test_a_lost_or_damaged_ledger_is_said_to_be_lost(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "ledger").write_bytes(content)
    found = store_in(tmp_path).read()
    assert (found.ledger, found.lost) == (Ledger(), True)
    store_in(tmp_path).write(ledger_of(1))
    assert jobs_in(tmp_path) == [1]


def test_nothing_of_another_boot_counts(tmp_path: Path) -> None:
    store_in(tmp_path).write(ledger_of(7))
    assert store_in(tmp_path, boot="next-boot").read().lost


def test_a_whole_ledger_that_cannot_be_read_is_not_replaced_by_an_older_one(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.write(ledger_of(1))
    store.write(ledger_of(1, 2))
    store._slots.write(b'{"boot_id": "this-boot", "of": "a later release"}')
    assert store.read().lost


@given(at=st.integers(0, 900), content=st.binary(min_size=1, max_size=40), slot=st.integers(0, 1))
@settings(max_examples=200)
def test_damage_to_a_slot_gives_the_other_one_or_nothing_and_never_something_else(
    tmp_path_factory: pytest.TempPathFactory, at: int, content: bytes, slot: int
) -> None:
    folder = tmp_path_factory.getbasetemp() / "damaged"
    if not folder.exists():
        folder.mkdir()
        for ledger in (ledger_of(1), ledger_of(1, 2)):
            store_in(folder).write(ledger)
        shutil.copy(folder / "ledger", folder / "whole")
    shutil.copy(folder / "whole", folder / "ledger")
    with (folder / "ledger").open("r+b") as file:
        file.seek(slot * SLOT_BYTES + at)
        file.write(content)
    assert store_in(folder).read().ledger in (Ledger(), ledger_of(1), ledger_of(1, 2))


def killed_at(call: int, action: Callable[[], object]) -> bool:
    """Run an action in a child that is killed by SIGKILL just before its n-th system call; return whether it was."""
    child = os.fork()
    if child == 0:
        calls = iter(range(call))

        def before(name: str) -> Callable[..., Any]:
            original = getattr(os, name)

            def wrapped(*args: Any, **kwargs: Any) -> Any:
                if next(calls, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                return original(*args, **kwargs)

            return wrapped

        try:
            for name in (
                "open",
                "pwrite",
                "write",
                "close",
                "rename",
                "replace",
                "unlink",
                "posix_fallocate",
            ):
                setattr(os, name, before(name))
            action()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False], ids=["the first ledger", "a later one"])
def test_a_hook_killed_at_any_system_call_leaves_the_old_ledger_or_the_new_one(
    tmp_path: Path, first: bool
) -> None:
    call, killed = 0, True
    while killed:
        folder = tmp_path / str(call)
        store = store_in(folder)
        with store.locked(deadline()):
            if not first:
                store.write(ledger_of(1))
                store.write(ledger_of(1, 2))
        before = store_in(folder).read()
        killed = killed_at(call, lambda store=store: store.write(ledger_of(1, 2, 3)))  # type: ignore[misc]
        after = store_in(folder).read()
        assert after in (before, type(after)(ledger=ledger_of(1, 2, 3), lost=False))
        with store.locked(deadline()):
            store.write(ledger_of(4))
        assert jobs_in(folder) == [4], "and the next hook goes on"
        call += 1
    assert call > 3, "nothing was killed: this test saw nothing"
    assert after.ledger == ledger_of(1, 2, 3)


def test_half_a_write_is_no_ledger(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.write(ledger_of(1))
    store.write(ledger_of(1, 2))
    whole = (tmp_path / "ledger").read_bytes()
    store.write(ledger_of(1, 2, 3))
    new = (tmp_path / "ledger").read_bytes()
    changed = [at for at in range(SLOT_BYTES) if whole[at] != new[at]]
    (tmp_path / "ledger").write_bytes(whole)
    with (tmp_path / "ledger").open("r+b", buffering=0) as file:
        file.write(new[: changed[0]])
        for at in range(changed[0], changed[-1]):
            file.write(new[at : at + 1])
            assert jobs_in(tmp_path) == [1, 2]
        file.write(new[changed[-1] :])
        assert jobs_in(tmp_path) == [1, 2, 3]


def test_the_lock_is_waited_for_no_longer_than_allowed(tmp_path: Path) -> None:
    clock = FakeClock()
    waiting = LedgerStore(tmp_path, clock=clock, boot_id="b")
    with (
        store_in(tmp_path).locked(deadline()),
        pytest.raises(LedgerError, match="too long"),
        waiting.locked(Deadline(clock, 0.5)),
    ):
        pytest.fail("two holders of one lock")
    with waiting.locked(Deadline(clock, 0.5)):
        assert clock.slept


def test_a_child_of_another_thread_keeps_no_lock(tmp_path: Path) -> None:
    def wait() -> bytes:
        time.sleep(60)
        return b""

    with store_in(tmp_path).locked(deadline()):
        child = Child(wait, timeout_s=60)
    with store_in(tmp_path).reconciling() as free:
        other = Child(wait, timeout_s=60)
    try:
        with (
            store_in(tmp_path).locked(Deadline(FakeClock(), 0.0)),
            store_in(tmp_path).reconciling() as again,
        ):
            assert free and again
    finally:
        for each in (child, other):
            os.kill(each._pid, signal.SIGKILL)


def test_the_holder_of_the_lock_goes_first_and_only_while_it_holds_it(tmp_path: Path) -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with store_in(tmp_path).locked(deadline()):
        assert os.getpriority(os.PRIO_PROCESS, 0) == (-20 if os.geteuid() == 0 else before)
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_one_process_reconciles_at_a_time(tmp_path: Path) -> None:
    with store_in(tmp_path).reconciling() as rads:
        assert rads
        with store_in(tmp_path).reconciling() as second:
            assert not second
    with store_in(tmp_path).reconciling() as rads:
        assert rads


def test_a_folder_that_cannot_be_made_is_an_error_of_the_ledger(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError), store_in(tmp_path / "file" / "run").locked(deadline()):
        pytest.fail("locked nothing")


def test_more_than_a_slot_holds_is_an_error_and_the_ledger_stays(tmp_path: Path) -> None:
    store_in(tmp_path).write(ledger_of(*range(1, 600)))
    with pytest.raises(LedgerError, match="File too large"):
        store_in(tmp_path).write(ledger_of(*range(1, 3000)))
    assert len(jobs_in(tmp_path)) == 599


def test_release_gives_back_once(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.write(ledger_of(1, 2))
    assert store.release(1, restart=0, deadline=deadline()) == allocation(1)
    assert store.release(1, restart=0, deadline=deadline()) is None
    assert jobs_in(tmp_path) == [2]


def test_release_on_a_node_where_nothing_was_ever_allocated_leaves_no_trace(tmp_path: Path) -> None:
    clock = FakeClock()
    store = LedgerStore(tmp_path / "run", clock=clock, boot_id="b")
    assert store.release(7, restart=0, deadline=Deadline(clock, 1.0)) is None
    assert not (tmp_path / "run").exists()


def test_release_leaves_a_lost_ledger_to_be_rebuilt(tmp_path: Path) -> None:
    assert store_in(tmp_path).release(7, restart=0, deadline=deadline()) is None
    assert store_in(tmp_path).read().lost


def test_a_hook_that_cannot_wait_leaves_a_note_for_the_next_one(tmp_path: Path) -> None:
    store, late = store_in(tmp_path), store_in(tmp_path)
    store.write(ledger_of(1, 2))
    with store.locked(deadline()):
        assert late.release(1, restart=0, deadline=Deadline(FakeClock(), 0.0)) == allocation(1)
    found = store.read()
    assert found.ledger == ledger_of(2)
    store.write(found.ledger)
    assert list((tmp_path / "released").iterdir()) == []
    assert jobs_in(tmp_path) == [2]


def test_a_note_that_comes_while_the_ledger_is_written_is_kept(tmp_path: Path) -> None:
    store, late = store_in(tmp_path), store_in(tmp_path)
    store.write(ledger_of(1, 2))
    with store.locked(deadline()):
        found = store.read()
        late.release(1, restart=0, deadline=Deadline(FakeClock(), 0.0))
        store.write(found.ledger)
    assert jobs_in(tmp_path) == [2]


def test_the_boot_has_an_id() -> None:
    assert boot_id() == boot_id() and len(boot_id()) == 36


def test_a_full_disk_refuses_no_allocation(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=1400k,nr_inodes=120") as folder:
        store = store_in(folder)
        store.write(ledger_of(1))
        fill(folder)
        for number in range(2, 300, 7):
            store.write(ledger_of(*range(1, number)))
            assert jobs_in(folder) == list(range(1, number))
        with store.locked(deadline()):
            assert store_in(folder).release(5, restart=0, deadline=Deadline(FakeClock(), 0.0)) == allocation(
                5
            )
        assert 5 not in jobs_in(folder), "a note finds a slot too"
