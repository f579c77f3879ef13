"""What is remembered of earlier runs is corrupt, locked, or not a file at all."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults.trial import Trials

from lab.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

AWAY_S = 10.0


def state_files(cluster: Cluster) -> list[Path]:
    """Return all that is remembered; at least the file that Epilogs append to."""
    state = cluster.place.root / "state"
    found = [path for path in state.rglob("*") if path.is_file()]
    return found or [state / "peaks.jsonl"]


def corrupt(cluster: Cluster) -> None:
    """Leave garbage for good, and radd to start on it."""
    for path in state_files(cluster):
        path.write_bytes(b'{"half a line\n\xff\xfe\0' + os.urandom(1 << 20) + b"\n[]\n{}\nnull\n1e999\n")
    cluster.restart_radd()


@contextmanager
def locked(paths: list[Path]) -> Iterator[None]:
    handles = [path.open("ab") for path in paths]
    try:
        for handle in handles:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        for handle in handles:
            handle.close()


def keep_locked(cluster: Cluster) -> None:
    with locked(state_files(cluster)):
        cluster.clock.sleep(AWAY_S)


def a_folder(cluster: Cluster) -> None:
    for path in state_files(cluster):
        path.unlink(missing_ok=True)
        path.mkdir()


def test_the_history_is_corrupt(trials: Trials) -> None:
    trials.check("history overwritten with garbage", corrupt)


def test_the_history_is_locked(trials: Trials) -> None:
    trials.check("history locked for 10 s", keep_locked)


def test_the_history_is_a_folder(trials: Trials) -> None:
    trials.check("history replaced by a folder", a_folder)
