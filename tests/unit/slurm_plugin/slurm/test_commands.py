from __future__ import annotations

from pathlib import Path

import pytest

from slurm_plugin.core.errors import SlurmError
from slurm_plugin.slurm.commands import SlurmCommands, update_words
from slurm_plugin.slurm.control import JobChange, SlurmControl
from slurm_plugin.slurm.queries.columns import Columns, records
from slurm_plugin.slurm.queries.printed import (
    JOB_COLUMNS,
    ONE_JOB_COLUMNS,
    job_view,
    parse_config,
    parse_nodes,
)
from slurm_plugin.slurm.versions import parse_version, traits

DATA = Path(__file__).parents[3] / "data"


def recorded(name: str) -> bytes:
    return (DATA / name).read_bytes()


def test_jobs_are_read_from_columns() -> None:
    found = {view.job_id: view for view in records(recorded("squeue_jobs.22.05.txt"), JOB_COLUMNS, job_view)}
    assert {number: view.gres for number, view in found.items()} == {
        10: "gres:shard:3",
        11: "gres:gpu:1",
        12: "gres:gpu:2",
    }
    assert (found[10].state, found[10].node, found[10].requeue) == ("RUNNING", "vm", False)
    assert (found[11].state, found[11].reason, found[11].node) == ("PENDING", "BeginTime", "")
    assert all(view.batch and view.partition == "gpu" and view.user_id == 0 for view in found.values())


def test_line_ends_in_a_comment_forge_nothing() -> None:
    content = recorded("squeue_job_with_comment.22.05.txt")
    (view,) = records(content, ONE_JOB_COLUMNS, job_view)
    assert (view.job_id, view.user_id, view.state) == (10, 0, "RUNNING")
    assert view.comment == "häl lo\n JobState=X | x"
    assert view.admin_comment == ""


def test_output_of_another_shape_is_refused() -> None:
    with pytest.raises(SlurmError):
        records(b"JOBID PARTITION\n", JOB_COLUMNS, job_view)
    with pytest.raises(SlurmError):
        records(recorded("sinfo_nodes.22.05.txt") * 3, JOB_COLUMNS, job_view)


def test_no_jobs_are_no_jobs() -> None:
    assert records(b"", JOB_COLUMNS, job_view) == records(b"\n", JOB_COLUMNS, job_view) == ()


def test_nodes_are_read_from_columns() -> None:
    (node,) = parse_nodes(recorded("sinfo_nodes.22.05.txt"))
    assert (node.name, node.address, node.state) == ("n0", "127.0.0.1", "MIXED")
    assert node.gres == "gpu:simulated:4,shard:simulated:156"
    assert (node.partitions, node.reason) == (("gpu", "plain"), "")


def test_versions_are_read_and_nonsense_is_not() -> None:
    assert parse_version(recorded("scontrol_version.22.05.txt").decode()) == (22, 5, 8)
    assert parse_version("slurm 24.11.5") == (24, 11, 5)
    with pytest.raises(SlurmError):
        parse_version("slurm")


def test_configuration_is_read_line_by_line() -> None:
    text = "Configuration data as of 2026\nTaskPlugin              = task/cgroup,task/affinity\nX = a=b\n"
    assert parse_config(text) == {"TaskPlugin": "task/cgroup,task/affinity", "X": "a=b"}


@pytest.mark.parametrize(
    ("version", "prefix"), [((22, 5, 8), "gres:"), ((24, 11, 5), "gres/"), ((26, 5, 5), "gres/")]
)
def test_a_change_is_one_request_in_the_version_s_spelling(
    version: tuple[int, int, int], prefix: str
) -> None:
    change = JobChange(gres="shard:40", comment="a b", admin_comment="rad: x", nice=-7, start_in_s=5)
    assert update_words(change, gres_prefix=traits(version).gres_prefix) == (
        "AdminComment=rad: x",
        "Comment=a b",
        f"TresPerNode={prefix}shard:40",
        "Nice=-7",
        "StartTime=now+5",
    )
    assert update_words(JobChange(start_now=True), gres_prefix="") == ("StartTime=now",)
    assert update_words(JobChange(), gres_prefix="") == ()


def test_a_slurm_that_does_not_answer_is_an_error_of_slurm(tmp_path: Path) -> None:
    control: SlurmControl = SlurmCommands(slurm_conf=str(tmp_path / "none.conf"), timeout_s=0.3)
    with pytest.raises(SlurmError):
        control.job(1)
    with pytest.raises(SlurmError):
        control.requeue(1)


class Answering(SlurmCommands):
    """Slurm's commands, each noted and answered with one job; squeue's columns are as wide as they were requested."""

    def __init__(self, conf: Path, **job: str) -> None:
        super().__init__(slurm_conf=str(conf), timeout_s=2.0)
        self.queries: list[tuple[str, ...]] = []
        self._job = job

    def ask(self, *argv: str, pings: bool = False) -> str:
        self.queries.append(argv)
        return ""

    def columns(self, program: str, columns: Columns, *which: str) -> bytes:
        self.queries.append((program, *which))
        record = "".join(self._job.get(name, "N/A").ljust(width) for name, width in columns)
        return record.encode() + b"\n"


def test_a_hook_has_one_question_about_its_job_and_none_about_slurm_s_configuration(tmp_path: Path) -> None:
    """Each takes two seconds where the first of two slurmctld is a machine without power."""
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=x\nSlurmctldHost=a\nSlurmctldHost=b\nAuthInfo=cred_expire=15\n")
    numbers = dict.fromkeys(("UserID", "PriorityLong", "RestartCnt", "Nice", "Requeue", "BatchFlag"), "1")
    row = {"JobID": "12", "ArrayJobID": "7", "ArrayTaskID": "3", "State": "RUNNING", **numbers}
    for look in (SlurmCommands.standing, SlurmCommands.job):
        slurm = Answering(conf, **row)
        assert look(slurm, 12) is not None
        slurm.requeue(12)
        slurm.update(12, JobChange(start_in_s=5))
        assert [(*argv[:2], argv[-1])[: 3 if argv[0] == "squeue" else 2] for argv in slurm.queries] == [
            ("squeue", "-a", "12"),
            ("squeue", "-a", "7_3"),  # scontrol is queried about this job alone
            ("scontrol", "requeue"),
            ("scontrol", "update"),
        ]
        assert slurm.queries[2][2] == "7_3" and slurm.queries[3][2] == "JobId=7_3"


def test_a_requeued_job_waits_as_this_machine_s_slurm_conf_has_it(tmp_path: Path) -> None:
    class Old(SlurmCommands):
        def version(self) -> tuple[int, int, int]:
            return (22, 5, 8)

    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=x\nAuthInfo=socket=/s,cred_expire=15\n")
    assert Old(slurm_conf=str(conf)).requeue_delay_s() == 18
    conf.write_text("ClusterName=x\n")
    assert Old(slurm_conf=str(conf)).requeue_delay_s() == 123


def test_the_version_is_queried_again_once_slurm_was_upgraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol = tmp_path / "scontrol"
    for module in ("slurm_plugin.core.process.run", "slurm_plugin.slurm.commands"):
        monkeypatch.setattr(f"{module}.find_program", lambda _: str(scontrol))

    def install(version: str) -> None:
        """Put a program in the place of another, as a package does, that answers and says so."""
        new = tmp_path / "new"
        new.write_text(f"#!/bin/sh\necho slurm-wlm {version}\necho asked >>{tmp_path}/asked\n")
        new.chmod(0o755)
        new.rename(scontrol)

    slurm = SlurmCommands()
    for version, expected in (("22.05.8", (22, 5, 8)), ("24.11.5", (24, 11, 5))):
        install(version)
        assert slurm.version() == slurm.version() == expected
    assert (tmp_path / "asked").read_text().count("asked") == 2
