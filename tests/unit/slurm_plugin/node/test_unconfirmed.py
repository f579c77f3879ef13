"""A doubt outlives its process until a later reconciliation takes it up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_plugin.node.unconfirmed import (
    LEAST_AGE_S,
    earlier_unconfirmed,
    forget_unconfirmed,
    record_unconfirmed,
)


def test_a_doubt_stays_until_it_is_forgotten_and_is_not_of_the_pass_that_had_it(tmp_path: Path) -> None:
    record_unconfirmed(tmp_path, ((7, 2), (8, None)))
    now_s = (tmp_path / "unconfirmed" / "7").stat().st_mtime
    assert earlier_unconfirmed(tmp_path, now_s=now_s + LEAST_AGE_S - 1) == ()
    assert earlier_unconfirmed(tmp_path, now_s=now_s + LEAST_AGE_S + 1) == ((7, 2), (8, None))
    forget_unconfirmed(tmp_path, ((7, 2), (9, 1)))
    assert earlier_unconfirmed(tmp_path, now_s=now_s + LEAST_AGE_S + 1) == ((8, None),)


def test_a_doubt_that_is_had_again_keeps_its_age_and_that_of_another_run_does_not(tmp_path: Path) -> None:
    record_unconfirmed(tmp_path, ((7, 2),))
    path = tmp_path / "unconfirmed" / "7"
    os.utime(path, (1000.0, 1000.0))
    record_unconfirmed(tmp_path, ((7, 2),))
    assert path.stat().st_mtime == 1000.0
    record_unconfirmed(tmp_path, ((7, 3),))
    assert path.stat().st_mtime > 1000.0


@pytest.mark.parametrize("name", ["x", "7.new"])
def test_what_is_no_doubt_is_left(tmp_path: Path, name: str) -> None:
    (tmp_path / "unconfirmed").mkdir()
    (tmp_path / "unconfirmed" / name).write_text("1")
    assert earlier_unconfirmed(tmp_path, now_s=0.0) == () and (tmp_path / "unconfirmed" / name).exists()


def test_a_folder_that_cannot_be_made_loses_the_doubt_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "unconfirmed").write_text("")
    record_unconfirmed(tmp_path, ((7, 2),))
    assert earlier_unconfirmed(tmp_path, now_s=0.0) == ()
