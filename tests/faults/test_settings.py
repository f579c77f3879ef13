"""rad.toml is broken or gone while jobs are booked; the cluster's key changes, or goes, with jobs in the queue."""

from __future__ import annotations

import secrets

import pytest
from faults.trial import Trials

from lab.cluster import Cluster
from lab.files import rewrite

pytestmark = pytest.mark.cluster

AWAY_S = 10.0


def toml_broken(cluster: Cluster) -> None:
    files = {path: path.read_text() for path in cluster.place.etc.glob("rad*.toml")}
    for path in files:
        rewrite(path, "mode = enforce, or so\n[")
    cluster.clock.sleep(AWAY_S)
    for path, text in files.items():
        rewrite(path, text)


def toml_missing(cluster: Cluster) -> None:
    files = {path: path.read_text() for path in cluster.place.etc.glob("rad*.toml")}
    for path in files:
        path.unlink()
    cluster.clock.sleep(AWAY_S)
    for path, text in files.items():
        path.write_text(text)


def key_changed(cluster: Cluster) -> None:
    """Give the cluster another key for good; what waits or runs carries bookings signed with the old one."""
    (cluster.place.etc / "key").write_bytes(secrets.token_bytes(32))
    cluster.restart_radd()


def key_missing(cluster: Cluster) -> None:
    key = cluster.place.etc / "key"
    away = key.with_name("key.away")
    key.rename(away)
    cluster.clock.sleep(AWAY_S)
    away.rename(key)


def test_rad_toml_is_broken_for_10_s(trials: Trials) -> None:
    trials.check("rad.toml broken for 10 s", toml_broken)


@pytest.mark.slow
def test_rad_toml_is_missing_for_10_s(trials: Trials) -> None:
    trials.check("rad.toml missing for 10 s", toml_missing)


@pytest.mark.slow
def test_the_key_changes_with_jobs_in_the_queue(trials: Trials) -> None:
    trials.check("cluster key changed under load", key_changed)


@pytest.mark.slow
def test_the_key_is_missing_for_10_s(trials: Trials) -> None:
    trials.check("cluster key missing for 10 s", key_missing)
