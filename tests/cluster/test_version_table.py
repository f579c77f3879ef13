"""The rows of the table of differences (slurm_plugin/slurm/versions.py), each asked of the Slurm that runs here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from slurm_plugin.core.errors import CommandError
from slurm_plugin.slurm.commands import parse_version
from slurm_plugin.slurm.versions import Traits, known, requeue_delay_s, traits

pytestmark = pytest.mark.cluster

SHARED = ("--gpus=1", "--comment=rad:memory=4G")
BROKEN_LUA = (
    "function slurm_job_submit(j, p, u) local nothing = nil; return nothing.at_all end\n"
    "function slurm_job_modify(j, r, p, u) return slurm.SUCCESS end\n"
)


@pytest.fixture
def version(cluster: Cluster) -> tuple[int, int, int]:
    found = parse_version(cluster.slurm("scontrol", "--version"))
    assert known(found)
    return found


@pytest.fixture
def here(version: tuple[int, int, int]) -> Traits:
    return traits(version)


@pytest.fixture
def rewrite(cluster: Cluster) -> Iterator[Callable[[str, Callable[[str], str]], None]]:
    """Change a file of the cluster's configuration; all are put back at the end."""
    before: dict[Path, str] = {}

    def change(name: str, edit: Callable[[str], str]) -> None:
        path = cluster.place.etc / name
        before.setdefault(path, path.read_text())
        path.write_text(edit(before[path]))
        cluster.reset_breaker()

    yield change
    for path, text in before.items():
        path.write_text(text)
    cluster.reset_breaker()


def submit(jobs: Jobs, *argv: str) -> int:
    job = jobs.submit(*argv)
    assert job.job_id is not None, job.messages
    return job.job_id


def test_a_request_is_changed_with_the_versions_prefix(jobs: Jobs, here: Traits) -> None:
    """In a partition that our shim leaves alone; in ours it spells the request anew."""
    job = submit(jobs, "--hold", "--partition=plain", "--gres=shard:2", "--wrap", "true")
    jobs.cluster.slurm("scontrol", "update", f"JobId={job}", f"TresPerNode={here.gres_prefix}shard:3")
    assert jobs.fields(job)["TresPerNode"] == f"{here.gres_prefix}shard:3"


def test_slurm_spreads_shards_where_it_can(jobs: Jobs, here: Traits) -> None:
    wrap = ("--wrap", "echo seat=$SLURM_JOB_GPUS; sleep 3")
    ids = [submit(jobs, *SHARED, *wrap) for _ in range(2)]
    jobs.cluster.wait("both run", lambda: all("seat=" in jobs.output(job) for job in ids), 30)
    seats = {jobs.output(job).splitlines()[0] for job in ids}
    assert len(seats) == (2 if here.spreads_shards else 1)


def test_an_error_in_lua_refuses_a_job_only_where_the_table_says_so(
    jobs: Jobs, here: Traits, rewrite: Callable[[str, Callable[[str], str]], None]
) -> None:
    rewrite("job_submit.lua", lambda _: BROKEN_LUA)
    answer = jobs.submit("--gpus=1", "--wrap", "true")
    assert (answer.job_id is None) == here.lua_error_refuses, answer.messages


@pytest.mark.parametrize("named", [False, True], ids=["default", "named"])
def test_hooks_are_told_the_output_file(
    jobs: Jobs, here: Traits, rewrite: Callable[[str, Callable[[str], str]], None], named: bool
) -> None:
    told = jobs.folder / "told"
    note = f"#!/bin/sh\nenv > '{told}.'$SLURM_JOB_ID\n"
    rewrite("prolog.sh", lambda text: text.replace("#!/bin/sh\n", note, 1))
    job = submit(jobs, *SHARED, *(("-o", "named.txt") if named else ()), "--wrap", "true")
    jobs.wait(job)
    lines = told.with_name(f"told.{job}").read_text().splitlines()
    paths = [line for line in lines if line.startswith("SLURM_JOB_STDOUT=") and not line.endswith("=")]
    assert bool(paths) == (named or here.hooks_see_default_output)


def test_scontrol_speaks_json_where_the_table_says_so(cluster: Cluster, here: Traits) -> None:
    if here.json:
        assert '"nodes"' in cluster.slurm("scontrol", "show", "node", "--json")
    else:
        with pytest.raises(CommandError):
            cluster.slurm("scontrol", "show", "node", "--json")


def test_a_requeued_job_gets_a_prolog_after_the_delay_that_the_table_names(
    jobs: Jobs, cluster: Cluster, version: tuple[int, int, int]
) -> None:
    settings = cluster.slurm("scontrol", "show", "config")
    auth_info = next(line for line in settings.splitlines() if line.startswith("AuthInfo"))
    delay_s = requeue_delay_s(version, auth_info)
    job = submit(jobs, *SHARED, "--wrap", "echo kind=$RAD_KIND; sleep 60")
    cluster.wait("it runs", lambda: "kind=shared" in jobs.output(job), 30)
    cluster.slurm("scontrol", "requeue", str(job))
    jobs.wait(job, "PENDING")
    cluster.slurm("scontrol", "update", f"JobId={job}", f"StartTime=now+{delay_s}")
    jobs.wait(job, "RUNNING", timeout_s=60)
    cluster.wait("it runs again", lambda: jobs.output(job).count("kind=") == 1, 30)
    assert "kind=shared" in jobs.output(job)
