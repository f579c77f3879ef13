from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.ledger.job_file import JobFile, placed_files
from slurm_plugin.core.records.node import Allocation

ALLOCATION = Allocation(
    job_id=7, user_id=1000, kind="shared", gpus=("GPU-0",), gpu_indices=(0,), booked_bytes=1, created_s=2.0
)


def test_tasks_get_what_was_left_and_a_lost_ledger_its_allocation(tmp_path: Path) -> None:
    file = JobFile(tmp_path, 7)
    assert (file.variables(), file.refusal(), file.exists()) == ({}, None, False)
    file.place({"A": "1", "B": "two words"}, ALLOCATION, boot_id="b")
    assert (file.variables(), file.refusal(), file.exists()) == ({"A": "1", "B": "two words"}, None, True)
    (found,) = placed_files(tmp_path, boot_id="b")
    assert (found.job_id, found.created_s, found.allocation) == (7, 2.0, ALLOCATION)
    (other,) = placed_files(tmp_path, boot_id="another")
    assert (other.created_s, other.allocation) == (None, None)
    file.remove()
    file.remove()
    assert placed_files(tmp_path, boot_id="b") == ()


def test_a_refusal_takes_the_place_of_what_was_left(tmp_path: Path) -> None:
    file = JobFile(tmp_path, 7)
    file.place({"A": "1"}, ALLOCATION, boot_id="b")
    file.refuse("the GPU is\nin use\nexport LD_PRELOAD=/x", boot_id="b", now_s=5.0)
    assert (file.variables(), file.refusal()) == ({}, "the GPU is in use export LD_PRELOAD=/x")
    file.mark({}, boot_id="b", now_s=6.0)
    assert (file.variables(), file.refusal(), file.exists()) == ({}, None, True)


@given(value=st.text(max_size=50))
def test_no_value_makes_a_line_of_its_own(tmp_path_factory: object, value: str) -> None:
    folder = tmp_path_factory.mktemp("f")  # type: ignore[attr-defined]
    JobFile(folder, 7).place({"A": value, "B": "2"}, ALLOCATION, boot_id="b")
    found = JobFile(folder, 7).variables()
    assert set(found) == {"A", "B"} and found["B"] == "2"
    assert JobFile(folder, 7).read(boot_id="b").allocation == ALLOCATION


def test_a_file_of_another_job_or_cut_short_shows_nothing(tmp_path: Path) -> None:
    JobFile(tmp_path, 8).place({}, ALLOCATION, boot_id="b")
    assert JobFile(tmp_path, 8).read(boot_id="b").allocation is None
    JobFile(tmp_path, 7).place({}, replace(ALLOCATION, restart=3), boot_id="b")
    whole = (tmp_path / "placed" / "7").read_bytes()
    for end in range(len(whole) - 2):
        os.chmod(tmp_path / "placed" / "7", 0o644)
        (tmp_path / "placed" / "7").write_bytes(whole[:end])
        assert JobFile(tmp_path, 7).read(boot_id="b").allocation is None


def test_a_time_beyond_all_numbers_shows_nothing(tmp_path: Path) -> None:
    file = JobFile(tmp_path, 7)
    file.place({}, ALLOCATION, boot_id="b")
    path = next((tmp_path / "placed").iterdir())
    path.write_text(path.read_text().replace("2.0", "9" * 400))
    assert file.read(boot_id="b").allocation is None
