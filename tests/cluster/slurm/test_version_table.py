"""The rows of the table of differences (slurm_plugin/slurm/versions.py), each checked on the Slurm that runs here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from lab import files
from lab.cluster import Cluster
from lab.config import shards_of
from lab.jobs import Jobs
from lab.place import NodeSpec
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.errors import CommandError
from slurm_plugin.slurm.versions import (
    AFTER_REVOCATION_S,
    Traits,
    Version,
    requeue_delay_s,
    whole_as_gpu,
)

pytestmark = pytest.mark.cluster

SINCE = {
    "lua_error_refuses": (26, 5, 0),
    "hooks_see_default_output": (26, 5, 0),
    "job_extra": (23, 2, 0),
    "json": (23, 11, 0),
    "requeue_delay": (25, 11, 0),
    "most_requeues": (23, 2, 0),
}
"""The table's second part: what is known to differ and decides nothing in our code."""

SHARED = ("--gpus=1", "--comment=rad:memory=4G")
Rewrite = Callable[[str, Callable[[str], str]], None]
BROKEN_LUA = (
    "function slurm_job_submit(j, p, u) local nothing = nil; return nothing.at_all end\n"
    "function slurm_job_modify(j, r, p, u) return slurm.SUCCESS end\n"
)


@pytest.fixture
def has(version: Version) -> Callable[[str], bool]:
    """Whether the version that runs has a property of the second part."""
    return lambda name: version >= SINCE[name]


@pytest.fixture
def rewrite(cluster: Cluster) -> Iterator[Rewrite]:
    """Change a file of the cluster's configuration; all are restored at the end."""
    before: dict[Path, str] = {}

    def change(name: str, edit: Callable[[str], str]) -> None:
        path = cluster.place.etc / name
        before.setdefault(path, path.read_text())
        files.rewrite(path, edit(before[path]))
        cluster.reset_breaker()

    yield change
    for path, text in before.items():
        files.rewrite(path, text)
    cluster.reset_breaker()
    if any(path.name == "slurm.conf" for path in before):
        cluster.slurm("scontrol", "reconfigure")


def test_a_request_is_changed_with_the_versions_prefix(jobs: Jobs, here: Traits) -> None:
    """In a partition that our shim leaves alone; in RAD's it spells the request again."""
    job = jobs.accepted("--hold", "--partition=plain", "--gres=shard:2", "--wrap", "true")
    jobs.cluster.slurm("scontrol", "update", f"JobId={job}", f"TresPerNode={here.gres_prefix}shard:3")
    assert jobs.fields(job)["TresPerNode"] == f"{here.gres_prefix}shard:3"


def test_slurm_spreads_shards_where_it_can(jobs: Jobs, here: Traits) -> None:
    wrap = ("--wrap", "echo index=$SLURM_JOB_GPUS; sleep 600")
    ids = [jobs.accepted(*SHARED, *wrap) for _ in range(2)]
    jobs.cluster.wait("both run", lambda: all("index=" in jobs.output(job) for job in ids), 30)
    gpu_indices = {jobs.output(job).splitlines()[0] for job in ids}
    assert len(gpu_indices) == (2 if here.spreads_shards else 1)


def test_an_error_in_lua_refuses_a_job_only_where_the_table_says_so(
    jobs: Jobs, has: Callable[[str], bool], rewrite: Rewrite
) -> None:
    rewrite("job_submit.lua", lambda _: BROKEN_LUA)
    answer = jobs.submit("--gpus=1", "--wrap", "true")
    assert (answer.job_id is None) == has("lua_error_refuses"), answer.messages


@pytest.fixture
def reported(jobs: Jobs, rewrite: Rewrite) -> Callable[[int], dict[str, str]]:
    """The environment that the Prolog of a job is given."""
    path = jobs.folder / "environment"
    note = f"#!/bin/sh\nenv > '{path}.'$SLURM_JOB_ID\n"
    rewrite("prolog.sh", lambda text: text.replace("#!/bin/sh\n", note, 1))

    def environment(job: int) -> dict[str, str]:
        jobs.wait(job)
        return dict(
            line.partition("=")[::2] for line in path.with_name(f"environment.{job}").read_text().splitlines()
        )

    return environment


@pytest.mark.parametrize("named", [False, True], ids=["default", "named"])
def test_hooks_are_informed_the_output_file(
    jobs: Jobs, has: Callable[[str], bool], reported: Callable[[int], dict[str, str]], named: bool
) -> None:
    job = jobs.accepted(*SHARED, *(("-o", "named.txt") if named else ()), "--wrap", "true")
    assert bool(reported(job).get("SLURM_JOB_STDOUT")) == (named or has("hooks_see_default_output"))


def test_hooks_are_informed_what_the_user_calls_extra(
    jobs: Jobs, has: Callable[[str], bool], reported: Callable[[int], dict[str, str]]
) -> None:
    extra = ("--extra=words",) if has("job_extra") else ()  # an option that 22.05 does not know
    job = jobs.accepted(*SHARED, *extra, "--wrap", "true")
    assert reported(job).get("SLURM_JOB_EXTRA") == ("words" if extra else None)


def test_scontrol_speaks_json_where_the_table_says_so(cluster: Cluster, has: Callable[[str], bool]) -> None:
    if has("json"):
        assert '"nodes"' in cluster.slurm("scontrol", "show", "node", "--json")
    else:
        with pytest.raises(CommandError):
            cluster.slurm("scontrol", "show", "node", "--json")


def setting(cluster: Cluster, name: str) -> str | None:
    """Return a setting of the running Slurm; None if it knows no such setting."""
    found = (line for line in shown_settings(cluster) if line.split()[:1] == [name])
    return next((line.partition("=")[2].strip() for line in found), None)


def shown_settings(cluster: Cluster) -> list[str]:
    return cluster.slurm("scontrol", "show", "config").splitlines()


def test_slurm_holds_a_job_after_so_many_requeues_where_the_table_says_so(
    cluster: Cluster, has: Callable[[str], bool]
) -> None:
    assert setting(cluster, "MaxBatchRequeue") == ("5" if has("most_requeues") else None)


def test_several_lines_of_a_hook_count_where_the_table_says_so(
    cluster: Cluster, here: Traits, rewrite: Rewrite
) -> None:
    rewrite("slurm.conf", lambda text: f"{text}\nEpilog=/bin/true\n")
    cluster.slurm("scontrol", "reconfigure")
    named = [line.split()[-1] for line in shown_settings(cluster) if line.startswith("Epilog")]
    both = [str(cluster.place.etc / "epilog.sh"), "/bin/true"]
    assert [each for each in named if each in both] == both[0 if here.joins_hooks else 1 :]


def test_the_delay_of_a_requeue_can_be_set_where_the_table_says_so(
    jobs: Jobs, cluster: Cluster, has: Callable[[str], bool], rewrite: Rewrite
) -> None:
    wanted_s, tolerance_s = 60, 10
    rewrite(
        "slurm.conf",
        lambda text: text.replace("SchedulerParameters=", f"SchedulerParameters=requeue_delay={wanted_s},"),
    )
    cluster.slurm("scontrol", "reconfigure")
    job = jobs.accepted("--partition=plain", "--wrap", "sleep 600")
    jobs.wait(job, "RUNNING")
    before_s = cluster.clock.now_s()
    cluster.slurm("scontrol", "requeue", str(job))
    start = jobs.wait(job, "PENDING")["StartTime"]
    requeued_s = datetime.fromisoformat(start).timestamp() - wanted_s
    is_wanted = before_s - tolerance_s < requeued_s < cluster.clock.now_s() + tolerance_s
    assert is_wanted == has("requeue_delay"), start


def test_a_requeued_job_gets_a_prolog_after_the_delay_that_the_table_names(
    jobs: Jobs, cluster: Cluster, version: Version
) -> None:
    """No sooner would it surely get one, and within a second it would fail with "credential revoked"."""
    delay_s = requeue_delay_s(version, setting(cluster, "AuthInfo") or "")
    assert delay_s >= AFTER_REVOCATION_S
    job = jobs.accepted(*SHARED, "--wrap", "echo kind=$RAD_KIND; sleep 600")
    cluster.wait("it runs", lambda: "kind=shared" in jobs.output(job), 30)
    cluster.slurm("scontrol", "requeue", str(job))
    jobs.wait(job, "PENDING")
    cluster.slurm("scontrol", "update", f"JobId={job}", f"StartTime=now+{delay_s}")
    jobs.wait(job, "RUNNING", timeout_s=60)
    cluster.wait("it runs again", lambda: jobs.output(job).count("kind=") == 1, 30)
    assert "kind=shared" in jobs.output(job)


def test_a_whole_gpu_is_requested_in_the_form_that_this_slurm_honours(
    jobs: Jobs, cluster: Cluster, version: Version
) -> None:
    """`exclusive_form = "auto"`: as submitted, and again after a recovery, when the rerun is alone on a GPU."""
    whole = shards_of(NodeSpec(name="n0").gpu_mib[0])
    form = "gpu:1" if whole_as_gpu(PartitionConfig(shards_per_gpu=whole), version) else f"shard:{whole}"
    job = jobs.accepted("--hold", "--gpus=1", "--comment=rad:policy=exclusive", "--wrap", "true")
    fields = jobs.fields(job)
    requested = fields.get("TresPerNode") or fields.get("TresPerJob", "")
    assert requested.replace("gres/", "gres:") in (f"gres:{form}", f"gres:{form.removesuffix(':1')}"), (
        requested
    )
    grows = "python3 fake_train.py --memory 3.8G,30G --seconds 3"
    job = jobs.accepted(*SHARED, "--open-mode=append", "--wrap", grows)
    again = jobs.wait(job, "COMPLETED", timeout_s=60)
    assert (again["Restarts"], again["TresPerNode"].replace("gres/", "gres:")) == ("1", f"gres:{form}")
