"""Hooks that run twice, or are killed at each of their steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.trial import Trials, nothing

from lab.cluster import Cluster

pytestmark = pytest.mark.cluster

KILLED_AT = Path(__file__).resolve().parent / "programs" / "killed_at.py"


def epilog_twice(cluster: Cluster) -> None:
    hook = cluster.place.etc / "epilog.sh"
    text = hook.read_text()
    first = cluster.place.etc / "epilog_once.sh"
    first.write_text(text)
    first.chmod(0o755)
    hook.write_text(f"#!/bin/sh\n{first}\n{first}\nexit 0\n")


def _killed(cluster: Cluster, hook: str) -> None:
    path = cluster.place.etc / f"{hook}.sh"
    text = path.read_text()
    assert f"-m {hook}" in text, text
    path.write_text(text.replace(f"-m {hook}", f"{cluster.place.etc}/killed_at.py {hook}"))
    (cluster.place.etc / "killed_at.py").write_text(KILLED_AT.read_text())


def prolog_killed(cluster: Cluster) -> None:
    _killed(cluster, "prolog")


def epilog_killed(cluster: Cluster) -> None:
    _killed(cluster, "epilog")


def test_the_epilog_runs_twice(trials: Trials) -> None:
    trials.check("Epilog run twice for each job", nothing, before=epilog_twice)


def test_the_prolog_is_killed_at_each_step(trials: Trials) -> None:
    trials.check("Prolog killed (-9) at each of its steps", nothing, before=prolog_killed)


@pytest.mark.slow
def test_the_epilog_is_killed_at_each_step(trials: Trials) -> None:
    trials.check("Epilog killed (-9) at each of its steps", nothing, before=epilog_killed)
