from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import FakeClock

from slurm_plugin.core.clock import Deadline
from slurm_plugin.core.errors import LedgerError
from slurm_plugin.core.ledger import Ledger
from slurm_plugin.core.ledger_store import LedgerStore, boot_id, replace_file
from slurm_plugin.core.records import Reservation
from slurm_plugin.core.shell import run
from slurm_plugin.core.units import GIB, KIB


def held(job_id: int) -> Reservation:
    return Reservation(
        job_id=job_id,
        user_id=1000,
        kind="shared",
        gpus=("GPU-0",),
        seats=(0,),
        booked_bytes=GIB,
        created_s=1.0,
    )


def store_in(folder: Path, boot: str = "this-boot") -> LedgerStore:
    return LedgerStore(folder, clock=FakeClock(), boot_id=boot)


def deadline(seconds: float = 1.0) -> Deadline:
    return Deadline(FakeClock(), seconds)


def with_copy(folder: Path, reservation: Reservation) -> None:
    (folder / "jobs" / str(reservation.job_id)).mkdir(parents=True)
    store_in(folder).write_copy(reservation)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    ledger = Ledger(reservations=(held(1), held(2)), last_gpu="GPU-0")
    store_in(tmp_path).write(ledger)
    found = store_in(tmp_path).read()
    assert (found.ledger, found.rebuilt) == (ledger, False)


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"boot_id": "this-boot"}', b"\xff\xfe\x00"])
def test_a_lost_or_damaged_ledger_is_rebuilt_from_the_jobs_own_copies(
    tmp_path: Path, content: bytes | None
) -> None:
    with_copy(tmp_path, held(7))
    if content is not None:
        (tmp_path / "ledger.json").write_bytes(content)
    found = store_in(tmp_path).read()
    assert (found.ledger.reservations, found.rebuilt) == ((held(7),), True)


def test_nothing_of_another_boot_counts(tmp_path: Path) -> None:
    with_copy(tmp_path, held(7))
    store_in(tmp_path).write(Ledger(reservations=(held(7),)))
    assert store_in(tmp_path, boot="next-boot").read().ledger.reservations == ()


def test_a_copy_cut_short_is_passed_over(tmp_path: Path) -> None:
    with_copy(tmp_path, held(7))
    (tmp_path / "jobs" / "7" / "reservation.json").write_text('{"boot_id": "this-boot", "reserva')
    assert store_in(tmp_path).read().ledger.reservations == ()


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


def test_a_folder_that_cannot_be_made_is_an_error_of_the_ledger(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError), store_in(tmp_path / "file" / "run").locked(deadline()):
        pytest.fail("locked nothing")


def test_release_gives_back_once(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.write(Ledger(reservations=(held(1), held(2))))
    assert store.release(1, restart=0, deadline=deadline()) == held(1)
    assert store.release(1, restart=0, deadline=deadline()) is None
    assert store.read().ledger.reservations == (held(2),)


def test_release_leaves_a_lost_ledger_to_be_rebuilt(tmp_path: Path) -> None:
    with_copy(tmp_path, held(7))
    assert store_in(tmp_path).release(7, restart=0, deadline=deadline()) == held(7)
    assert not (tmp_path / "ledger.json").exists()


def test_a_hook_that_cannot_wait_leaves_a_note_for_the_next_one(tmp_path: Path) -> None:
    store, late = store_in(tmp_path), store_in(tmp_path)
    store.write(Ledger(reservations=(held(1), held(2))))
    with store.locked(deadline()):
        assert late.release(1, restart=0, deadline=Deadline(FakeClock(), 0.0)) == held(1)
    found = store.read()
    assert found.ledger.reservations == (held(2),)
    store.write(found.ledger)
    assert list((tmp_path / "released").iterdir()) == []
    assert store_in(tmp_path).read().ledger.reservations == (held(2),)


def test_a_note_that_comes_while_the_ledger_is_written_is_kept(tmp_path: Path) -> None:
    store, late = store_in(tmp_path), store_in(tmp_path)
    store.write(Ledger(reservations=(held(1), held(2))))
    with store.locked(deadline()):
        found = store.read()
        late.release(1, restart=0, deadline=Deadline(FakeClock(), 0.0))
        store.write(found.ledger)
    assert store.read().ledger.reservations == (held(2),)


def test_slurm_is_asked_at_most_once_in_an_interval(tmp_path: Path) -> None:
    clock = FakeClock(now_s=os.stat(tmp_path).st_mtime + 1)
    store = LedgerStore(tmp_path, clock=clock, boot_id="b")
    assert store.may_ask(60)
    assert not store.may_ask(60)
    clock.time_s += 120
    assert store.may_ask(60)


def test_a_rename_never_leaves_a_draft(tmp_path: Path) -> None:
    replace_file(tmp_path / "a", b"one")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        replace_file(tmp_path / "folder", b"two")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "folder"]


def test_the_boot_has_an_id() -> None:
    assert boot_id() == boot_id() and len(boot_id()) == 36


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(folder)], timeout_s=5)
    try:
        yield folder
    finally:
        run(["umount", str(folder)], timeout_s=5)


def test_a_full_disk_takes_one_more_ledger_and_never_damages_the_old_one(small_disk: Path) -> None:
    store = store_in(small_disk)
    store.write(Ledger(reservations=(held(1),)))
    filler = (small_disk / "filler").open("wb", buffering=0)
    with pytest.raises(OSError):
        while True:
            filler.write(bytes(4 * KIB))
    store.write(Ledger(reservations=(held(1), held(2))))
    assert [one.job_id for one in store.read().ledger.reservations] == [1, 2]
    with pytest.raises(OSError):
        while True:
            filler.write(bytes(4 * KIB))
    many = Ledger(reservations=tuple(held(number) for number in range(400)))
    with pytest.raises(LedgerError):
        store.write(many)
    assert json.loads((small_disk / "ledger.json").read_text())["boot_id"] == "this-boot"
    assert [one.job_id for one in store.read().ledger.reservations] == [1, 2]
