"""Where one job is looked for, and what is said of a place that cannot be looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeClock

from slurm_plugin.admin.job_report import gather
from slurm_plugin.admin.job_report.report import JobFacts
from slurm_plugin.admin.top.fleet import Fleet, NodeAnswer
from slurm_plugin.core.comments import signed_comment
from slurm_plugin.core.comments.signed_comment import signed_booking
from slurm_plugin.core.config.load import Config, Features, Paths, TelemetryConfig
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.history.runs import Run, peaks_path, record
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.logs.hook_log import HookLog
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.export.status import GpuStatus, JobStatus, NodeStatus
from slurm_plugin.slurm.control import NodeView
from slurm_plugin.slurm.queries.job_times import JobTimes

KEY = b"k" * 32
BOOKING = Booking(kind="shared", memory_bytes=4 * GIB)
TIMES = JobTimes(
    job_id=7,
    user_id=1000,
    state="RUNNING",
    partition="gpu",
    nodes="gpu1",
    requested="gres/shard:4",
    comment=signed_booking(BOOKING, user_id=1000, key=KEY),
    restarts=0,
    submit_s=1.0,
    start_s=2.0,
    end_s=None,
)


class Site:
    """A machine on which everything of a job can be looked at, until a test takes something away."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.times: JobTimes | SlurmError | None = TIMES
        self.requested: list[Mapping[str, tuple[str, int]]] = []
        self.address: str | None = "10.0.0.1"
        self.trouble = ""
        (folder / "key").write_bytes(KEY)
        (folder / "key").chmod(0o600)
        (folder / "slurm.conf").write_text("ClusterName=a\n")
        (folder / "state").mkdir()
        (folder / "state" / "peaks.jsonl").touch()
        paths = {name: str(folder / name) for name in ("run", "state", "key", "log")}
        self.config = Config(
            paths=Paths(**paths, slurm_conf=str(folder / "slurm.conf")),
            telemetry=TelemetryConfig(serve="0.0.0.0:9835"),
        )
        for job_id in (7, 70, 17):
            HookLog(str(folder / "log"), "prolog", job_id=job_id, clock=FakeClock()).write(EventKind.PLACED)
        monkeypatch.setattr(gather, "job_times", self._job_times)
        monkeypatch.setattr(gather, "SlurmCommands", lambda **_: self)
        monkeypatch.setattr(gather, "Gatherer", self._gatherer)

    def _job_times(self, job_id: int, **_: object) -> JobTimes | None:
        if isinstance(self.times, SlurmError):
            raise self.times
        return self.times

    def node(self, name: str) -> NodeView:
        if self.address is None:
            raise SlurmError("no answer")
        return NodeView(name=name, address=self.address)

    def _gatherer(self, hosts: Mapping[str, tuple[str, int]], **_: Any) -> Site:
        self.requested.append(hosts)
        return self

    def look(self) -> Fleet:
        gpus = tuple(
            GpuStatus(
                index=index,
                uuid=f"GPU-{index}",
                name="H100",
                state="ok",
                usable_bytes=10,
                used_bytes=0,
                booked_bytes=0,
                unmanaged_bytes=0,
                smact=None,
                smact_source=None,
                averaged=True,
                jobs=(job_on_gpu(job_id),),
            )
            for index, job_id in enumerate((8, 7))
        )
        status = None if self.trouble else NodeStatus(host="gpu1", time_s=1.0, gpus=gpus)
        return Fleet(time_s=1.0, nodes=(NodeAnswer(name="gpu1", status=status, trouble=self.trouble),))

    def found(self) -> JobFacts:
        return gather.find(7, self.config, FakeClock())


def job_on_gpu(job_id: int) -> JobStatus:
    return JobStatus(
        job_id=job_id,
        user_id=1000,
        kind="shared",
        booked_bytes=4,
        estimate_bytes=None,
        used_bytes=None,
        peak_bytes=None,
        smact=None,
    )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def test_all_that_is_known_is_found(site: Site) -> None:
    found = site.found()
    assert (found.times, found.booking, found.missing) == (TIMES, BOOKING, ())
    assert [entry.job_id for entry in found.events] == [7], "no other whose number begins or ends like it"
    assert [(name, gpu.uuid) for name, gpu in found.live] == [("gpu1", "GPU-1")]
    assert site.requested == [{"gpu1": ("10.0.0.1", 9835)}]


@pytest.mark.parametrize(
    "change",
    [
        {"state": "COMPLETED"},
        {"state": "RUNNING", "restarts": 1, "admin_comment": "rad: recovered restart=1 - out of memory"},
    ],
    ids=str,
)
def test_runs_that_a_node_keeps_to_itself_are_missing_in_one_line(site: Site, change: dict[str, Any]) -> None:
    site.times = replace(TIMES, **change)
    (line,) = site.found().missing
    assert line.startswith("its runs: run rad report 7 on gpu1, or share ")
    assert line.endswith(f"{site.folder}/state, where Epilogs record them, with the nodes")
    record(peaks_path(site.folder / "state"), Run(user_id=1000, job_id=7, restart=0))
    assert site.found().missing == ()


@pytest.mark.parametrize(
    "change",
    [
        {"state": "PENDING", "restarts": 1, "admin_comment": "rad: requeued restart=1 - no idle GPU"},
        {"state": "CANCELLED", "nodes": ""},
        {"state": "RUNNING"},
    ],
    ids=str,
)
def test_a_job_that_ended_no_run_lacks_none(site: Site, change: dict[str, Any]) -> None:
    site.times = replace(TIMES, **change)
    assert site.found().missing == ()


@pytest.mark.parametrize("history", [True, False])
def test_whether_peaks_are_remembered_is_what_rad_toml_says(site: Site, history: bool) -> None:
    site.config = replace(site.config, features=Features(history=history))
    assert site.found().remembered == history


@pytest.mark.parametrize("address", ["", None])
def test_a_node_whose_address_slurm_does_not_show_is_queried_by_its_name(
    site: Site, address: str | None
) -> None:
    site.address = address
    assert len(site.found().live) == 1 and site.requested == [{"gpu1": ("gpu1", 9835)}]


def test_a_job_that_is_ending_is_still_there(site: Site) -> None:
    site.times = replace(TIMES, state="COMPLETING")
    assert len(site.found().live) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"state": "PENDING"},
        {"state": "COMPLETED"},
        {"nodes": "gpu[1-2]"},
        {"nodes": "gpu1,gpu2"},
        {"nodes": "gpü"},
    ],
    ids=str,
)
def test_a_job_that_is_on_no_single_node_now_is_looked_for_on_none(
    site: Site, change: dict[str, str]
) -> None:
    site.times = replace(TIMES, **change)  # type: ignore[arg-type]
    assert site.found().live == [] and site.requested == []


def test_a_site_that_serves_nothing_is_not_queried(site: Site) -> None:
    site.config = replace(site.config, telemetry=TelemetryConfig(serve=""))
    assert site.found().live == [] and site.requested == []


def test_what_cannot_be_looked_at_is_named(site: Site) -> None:
    site.trouble = "connection refused"
    (site.folder / "key").unlink()
    (site.folder / "log" / "events.jsonl").unlink()
    (site.folder / "log" / "events.jsonl").mkdir()
    found = site.found()
    assert (found.booking, found.events, found.live) == (None, [], [])
    heads = [line.split(":")[0] for line in found.missing]
    assert heads == ["booking", "events", "rad-monitor of gpu1"]
    assert "connection refused" in found.missing[-1]


def test_a_user_is_given_no_advice_on_the_keys_owner(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: str, flags: int) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(signed_comment, "opened", closed)
    (line,) = site.found().missing
    assert line == "booking: only root may read the cluster's key; run this on the controller, as root"


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ("ClusterName=a\n", "no longer has the job, and there is no slurmdbd"),
        ("AccountingStorageType=accounting_storage/slurmdbd\n", "has no such job"),
    ],
)
def test_a_job_that_slurm_does_not_know(site: Site, conf: str, words: str) -> None:
    (site.folder / "slurm.conf").write_text(conf)
    site.times = None
    found = site.found()
    assert found.times is None and found.booking is None and found.live == []
    assert len(found.missing) == 1 and words in found.missing[0]


def test_a_slurm_that_does_not_answer(site: Site) -> None:
    site.times = SlurmError("timed out")
    assert site.found().missing == ("Slurm: timed out",)
