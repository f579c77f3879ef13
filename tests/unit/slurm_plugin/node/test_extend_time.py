"""What the look at time limits does at bad moments; Slurm's answers are what its programs print."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from small_disks import fill, small_disk

from lab.bare_node import make_bare_node
from slurm_plugin.core.clock import Deadline, SystemClock
from slurm_plugin.core.config.load import load_config
from slurm_plugin.core.files.preallocated import SpareFiles
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.node.extend_time import MoreTime
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.queries.columns import Columns

ALLOCATION = Allocation(
    job_id=7,
    user_id=1000,
    kind="shared",
    gpus=("GPU-0",),
    gpu_indices=(0,),
    booked_bytes=1 << 30,
    created_s=1.0,
    partition="gpu",
)


class Printed(SlurmCommands):
    """One job that Slurm prints; commands are kept."""

    def __init__(self, state: str = "RUNNING", *, left_s: float = 120.0) -> None:
        super().__init__()
        self.state, self.left_s = state, left_s
        self.limit = "15:00"
        self.reported: list[str] = []
        self.queries = 0

    def exact(self, job_id: int) -> str:
        return str(job_id)

    def config(self) -> dict[str, str]:
        return {}

    def columns(self, program: str, columns: Columns, *which: str) -> bytes:
        end = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(SystemClock().now_s() + self.left_s))
        row = {"JobID": "7", "State": self.state, "TimeLimit": "10:00", "EndTime": end, "Partition": "gpu"}
        if "PENDING" in which:
            row["TimeLimit"] = self.limit
            if self.state != "PENDING":
                return b""
        elif program == "squeue":
            self.queries += 1
        else:
            row = {"Partition": "gpu*", "Time": "infinite"}
        return "".join(f"{row.get(name, 'N/A'):<{width}}" for name, width in columns).encode() + b"\n"

    def ask(self, *argv: str, pings: bool = False) -> str:
        if argv[1] == "update":
            self.reported.append(argv[-1])
        return "No reservations in the system\n"


def node_of(folder: Path, slurm: SlurmCommands) -> Node:
    node = replace(
        Node.here(load_config(make_bare_node(folder, gpus=1, gpu_gib=10)), {}), slurm=lambda: slurm
    )
    hold(node, ALLOCATION)
    return node


def hold(node: Node, *allocation: Allocation) -> None:
    with node.store.locked(Deadline(node.clock, 5)):
        node.store.write(Ledger(allocations=allocation))


def looks(node: Node) -> MoreTime:
    return MoreTime(node, shared_s=lambda _: 300.0, log_event=lambda kind, text: None)


def test_a_job_that_was_suspended_at_the_look_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = Printed("SUSPENDED")
    node = node_of(tmp_path, slurm)
    more_time = looks(node)
    more_time.look()
    slurm.state = "RUNNING"
    more_time.look()
    assert (slurm.queries, slurm.reported) == (1, []), "it is not queried at every look"
    now_s = node.clock.now_s()
    monkeypatch.setattr(SystemClock, "now_s", lambda self: now_s + 61.0)
    more_time.look()
    assert slurm.reported == ["TimeLimit=+5"]


def test_a_new_run_of_a_job_is_looked_at_again(tmp_path: Path) -> None:
    slurm = Printed(left_s=3000.0)
    node = node_of(tmp_path, slurm)
    more_time = looks(node)
    more_time.look()
    more_time.look()
    assert (slurm.queries, slurm.reported) == (1, [])
    slurm.left_s = 100.0
    hold(node, replace(ALLOCATION, restart=1))
    more_time.look()
    assert slurm.reported == ["TimeLimit=+5"]
    more_time.look()
    assert slurm.reported == ["TimeLimit=+5"], "no job gets the same minutes twice"


def test_time_is_given_on_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "run", "size=2m,nr_inodes=200") as run:
        slurm = Printed()
        node = node_of(tmp_path, slurm)
        SpareFiles(run).fill()
        more_time = looks(node)
        fill(run)
        more_time.look()
        assert slurm.reported == ["TimeLimit=+5"]
        looks(node).look()
        assert slurm.reported == ["TimeLimit=+5"], (
            "what was given is known to the monitor that comes after it"
        )


def test_where_nothing_can_be_written_down_nothing_is_given(tmp_path: Path) -> None:
    slurm = Printed()
    node = node_of(tmp_path, slurm)
    more_time = looks(node)
    folder = node.run / "monitor" / "limits"
    folder.rmdir()
    folder.write_text("no folder")
    with pytest.raises(OSError):
        more_time.look()
    assert slurm.reported == []


def test_a_record_of_an_older_release_counts(tmp_path: Path) -> None:
    slurm = Printed()
    node = node_of(tmp_path, slurm)
    more_time = looks(node)
    path = node.run / "monitor" / "limits" / "7.json"
    path.write_text('{"asked_s": 600.0, "granted_s": 300.0}')
    more_time.look()
    assert slurm.reported == [], "what was given before an upgrade is not given again"


@pytest.mark.parametrize(("limit", "reported"), [("15:00", ["TimeLimit=10"]), ("12:00", [])])
def test_a_job_that_waits_again_has_the_limit_that_it_requested(
    tmp_path: Path, limit: str, reported: list[str]
) -> None:
    """Else it would be doubled again on the next node, and so on with each `scontrol requeue` of its user."""
    slurm = Printed()
    node = node_of(tmp_path, slurm)
    more_time = looks(node)
    more_time.look()
    assert slurm.reported == ["TimeLimit=+5"]
    hold(node)
    more_time.look()
    assert slurm.reported == ["TimeLimit=+5"], "it may be ending, or have ended"
    slurm.state, slurm.limit = "PENDING", limit
    for _ in range(2):
        more_time.look()
        assert slurm.reported[1:] == reported
    assert os.listdir(node.run / "monitor" / "limits") == []


def test_each_grant_is_reported(tmp_path: Path) -> None:
    reported: list[tuple[EventKind, str]] = []
    node = node_of(tmp_path, Printed())
    MoreTime(node, shared_s=lambda _: 300.0, log_event=lambda *line: reported.append(line)).look()
    assert reported == [
        (EventKind.MORE_TIME, "job 7 shared its GPU: its limit is 15 minutes now, it requested 10")
    ]
    assert os.listdir(node.run / "monitor" / "limits") == ["7.json"]
