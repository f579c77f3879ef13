"""A real slurmctld tries Slurm's new files before they replace the old ones; the running cluster sees nothing."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.daemons import wait_until
from lab.jobs import Jobs
from slurm_plugin.slurm.files.trial import TrialResult, try_start
from tests.cluster.install.test_edit_slurm import bare
from tests.cluster.install.test_install_sites import files
from tests.cluster.install.test_uninstall_order import jobs, typed
from tests.timing import within

__all__ = ["bare", "jobs"]
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has a network of its own"),
]

START_S = within(20)


@pytest.fixture(autouse=True)
def left_as_it_was(bare: Cluster) -> Iterator[None]:
    before, running = in_run(), slurmctlds()
    assert running, "that of the cluster"
    yield
    assert in_run() == before
    ended = "the slurmctld of the trial and its forks"
    wait_until(ended, lambda: slurmctlds() == running, timeout_s=within(5), clock=bare.clock)
    assert bare.answers()


def in_run() -> set[str]:
    """Return what is in /run, but for the folder that every mount(8) keeps there."""
    return {path.name for path in Path("/run").iterdir()} - {"mount"}


def slurmctlds() -> int:
    """Return how many run in this process namespace, without zombies and the forks that each makes for moments."""
    running: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            text = path.read_text()
        except OSError:
            continue
        found = re.search(r"(?s)\AName:\s*slurmctld\n.*\nState:\s*[^Z].*\nPPid:\s*(\d+)", text)
        if found:
            running[int(path.parent.name)] = int(found[1])
    return sum(parent not in running for parent in running.values())


def changed(cluster: Cluster, old: str, new: str) -> TrialResult:
    conf = cluster.place.slurm_conf
    text = conf.read_text()
    assert re.search(old, text)
    return try_start(conf, {conf: re.sub(old, new, text)}, timeout_s=START_S)


def test_the_present_files_and_right_ones_start_while_jobs_run(bare: Cluster, jobs: Jobs) -> None:
    job = jobs.accepted("--gres=gpu:1", "--wrap", "sleep 600")
    jobs.wait(job, "RUNNING")
    assert try_start(bare.place.slurm_conf, {}, timeout_s=START_S) == TrialResult()
    assert changed(bare, r"MaxTime=INFINITE", "MaxTime=100") == TrialResult()
    assert jobs.fields(job)["JobState"] == "RUNNING" and jobs.fields(job)["Restarts"] == "0"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            r"(?s)SelectType=select/cons_tres\nSelectTypeParameters=\S+(.*)(Gres=gpu\S*)(.*)\Z",
            r"SelectType=select/linear\1\2,shard:156\3GresTypes=gpu,shard\n",
            "cons_tres",
        ),
        (r"(?m)^PartitionName=gpu .*", "PartitionName=gpu Nodes=nowhere", "."),
        (r"(?m)^SelectType=.*", "SelectType=select/none_such", "select"),
    ],
)
def test_slurmctlds_own_words_say_why_others_do_not(bare: Cluster, old: str, new: str, says: str) -> None:
    trial = changed(bare, old, new)
    assert re.search(says, trial.fatal) and not trial.unknown


def test_where_the_present_files_do_not_start_nothing_is_said_of_the_new(
    bare: Cluster, tmp_path: Path
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(bare.place.slurm_conf.read_text() + "SelectType=select/none_such\n")
    trial = try_start(conf, {conf: conf.read_text() + "# new\n"}, timeout_s=START_S)
    assert "present files" in trial.unknown and not trial.fatal


def test_a_slurmctld_that_hangs_is_stopped_in_time(bare: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "hangs"
    program.write_text("#!/bin/sh\nsleep 999\n")
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    trial = try_start(bare.place.slurm_conf, {}, timeout_s=0.5, program=str(program))
    assert "not ready after 0.5 s" in trial.unknown


def test_a_site_that_would_not_start_stays_as_it_is(bare: Cluster, jobs: Jobs) -> None:
    """A script that slept until JobSubmitPlugins named it: no line of doctor's could know."""
    (bare.place.etc / "job_submit.lua").write_text('require("rad")\nfunction slurm_job_submit(\n')
    before = files(bare)
    for options in (["--dry-run"], []):
        said = typed(bare, "install", *options)
        assert "slurmctld does not start with these files: " in said and "status 1" in said, said
        assert files(bare) == before
    (bare.place.etc / "job_submit.lua").unlink()
    assert typed(bare, "install").rstrip().endswith("status 0")
