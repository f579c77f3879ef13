"""Which MPS server a job gets: its user's, its Slurm account's, the GPU's or its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import FakeSlurm as AnswersSlurm

from lab.bare_node import make_bare_node
from prolog.job_server import note_quarantine, with_server
from slurm_plugin.core.comments.admin_comment import read_signed
from slurm_plugin.core.config.load import Config, Features, PartitionConfig, load_config
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.records.node import Demand
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.control import JobChange, JobView
from slurm_plugin.slurm.node.hook_env import HookJob

ENFORCED = "AccountingStorageEnforce=limits,qos\n"
LAB = "aa51146d38077"


class FakeSlurm:
    """A Slurm that knows one account, or does not answer."""

    def __init__(self, account: str | None) -> None:
        self._account = account

    def account(self, job_id: int) -> str:
        if self._account is None:
            raise SlurmError("no answer")
        return self._account


def key(
    folder: Path,
    *,
    conf: str = ENFORCED,
    account: str = "",
    slurm_account: str | None = "lab",
    features: Features | None = None,
    gpus: int = 1,
    kind: str = "shared",
    own: bool = False,
    **settings: object,
) -> str:
    (folder / "slurm.conf").write_text(conf)
    config: Config = load_config(make_bare_node(folder, gpus=1, gpu_gib=10))
    config = replace(
        config,
        features=features or Features(),
        paths=replace(config.paths, slurm_conf=str(folder / "slurm.conf")),
    )
    node = replace(Node.here(config, {}), slurm=lambda: FakeSlurm(slurm_account))
    demand = Demand(
        job_id=7,
        user_id=1000,
        kind=kind,  # type: ignore[arg-type]
        gpus=gpus,
        booked_bytes=1,
        gpu_indices=tuple(range(gpus)),
        own_server=own,
    )
    job = HookJob(job_id=7, user_id=1000, group_id=1000, account=account)
    return with_server(demand, node, job, PartitionConfig(collocate=True, **settings)).server  # type: ignore[arg-type]


@pytest.mark.parametrize(("scope", "expected"), [("user", "1000"), ("gpu", "all"), ("account", LAB)])
def test_the_partition_says_which_jobs_share(tmp_path: Path, scope: str, expected: str) -> None:
    assert key(tmp_path, mps_server=scope) == expected
    assert key(tmp_path, mps_server=scope, own=True) == "j7"


def test_an_account_that_slurm_does_not_check_is_what_the_user_wrote_and_does_not_count(
    tmp_path: Path,
) -> None:
    for conf in ("", "AccountingStorageEnforce=nojobs\n"):
        assert key(tmp_path, mps_server="account", conf=conf, account="lab") == "1000"


@pytest.mark.parametrize(
    ("account", "slurm_account", "expected"), [("lab", None, LAB), ("", "", "1000"), ("", None, "1000")]
)
def test_the_account_is_the_prologs_or_slurms(
    tmp_path: Path, account: str, slurm_account: str | None, expected: str
) -> None:
    assert key(tmp_path, mps_server="account", account=account, slurm_account=slurm_account) == expected


def test_what_runs_without_mps_has_no_server(tmp_path: Path) -> None:
    assert key(tmp_path, gpus=2) == ""
    assert key(tmp_path, kind="whole") == ""
    assert key(tmp_path, sharing="streams") == ""
    assert key(tmp_path, policy="exclusive") == ""
    assert key(tmp_path, features=Features(mps=False)) == ""


def test_a_job_under_quarantine_is_reported_so_while_slurm_takes_notes(tmp_path: Path) -> None:
    config = load_config(make_bare_node(tmp_path, gpus=1, gpu_gib=10))
    view = JobView(job_id=7, user_id=1000, state="RUNNING", restarts=1)
    slurm = AnswersSlurm(view)
    node = replace(Node.here(config, {}), slurm=lambda: slurm)
    job = HookJob(job_id=7, user_id=1000, group_id=1000, restart=1)
    assert note_quarantine(node, job, "no MPS server with other users until noon") == ""
    ((job_id, change),) = slurm.reported
    assert job_id == 7 and isinstance(change, JobChange)
    note = read_signed(change.admin_comment or "", job_id=7, user_id=1000, key=node.key())
    assert note is not None and (note.event, note.detail) == (
        "warned",
        "no MPS server with other users until noon",
    )
