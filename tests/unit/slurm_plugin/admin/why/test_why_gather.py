"""Where `rad why` looks, and what it says of a source that does not answer."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import FakeClock

from slurm_plugin.admin.top.fleet import Fleet, NodeAnswer
from slurm_plugin.admin.why import gather
from slurm_plugin.core.config.load import Config, PartitionConfig, TelemetryConfig
from slurm_plugin.core.errors import ConfigError, SlurmError
from slurm_plugin.slurm.control import JobView, NodeView

JOB = JobView(
    job_id=7, user_id=1000, state="PENDING", reason="Resources", partition="gpu", gres="gres/shard:4"
)
SERVES = Config(partitions={"gpu": PartitionConfig()}, telemetry=TelemetryConfig(serve="0.0.0.0:9000"))
NODES = (
    NodeView(name="gpu1", address="10.0.0.1", gres="gpu:4", partitions=("gpu",)),
    NodeView(name="gpu2", gres="gpu:4", partitions=("other",)),
    NodeView(name="cpu1", partitions=("gpu",)),
)


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    class Gatherer:
        def __init__(self, places: dict[str, Any], **_: Any) -> None:
            found.append(places)

        def look(self) -> Fleet:
            return Fleet(time_s=0.0, nodes=(NodeAnswer(name="gpu1", trouble="no answer in 1 s"),))

    monkeypatch.setattr(gather, "Gatherer", Gatherer)
    monkeypatch.setattr(gather, "waiting_jobs", lambda **_: ())
    return found


def use(monkeypatch: pytest.MonkeyPatch, *jobs: JobView, nodes: tuple[NodeView, ...] | None = NODES) -> None:
    class Slurm:
        def job(self, job_id: int) -> JobView | None:
            return next((job for job in jobs if job.job_id == job_id), None)

        def nodes(self) -> tuple[NodeView, ...]:
            if nodes is None:
                raise SlurmError("sinfo: time-out")
            return nodes

    monkeypatch.setattr(gather, "SlurmCommands", lambda **_: Slurm())


def test_the_monitors_of_its_partition_are_queried(
    monkeypatch: pytest.MonkeyPatch, queries: list[dict[str, Any]]
) -> None:
    use(monkeypatch, JOB)
    found = gather.look(7, SERVES, FakeClock())
    assert queries == [{"gpu1": ("10.0.0.1", 9000)}]
    assert found.missing == ("rad-monitor of 1 of 1 nodes; gpu1: no answer in 1 s",)


def test_without_rad_toml_sharing_is_not_explained(
    monkeypatch: pytest.MonkeyPatch, queries: list[dict[str, Any]]
) -> None:
    use(monkeypatch, JOB)
    found = gather.look(7, Config(), FakeClock())
    assert queries == [{"gpu1": ("10.0.0.1", 9835)}] and found.missing[0].startswith("rad.toml:")


def test_without_nodes_there_is_still_an_answer(
    monkeypatch: pytest.MonkeyPatch, queries: list[dict[str, Any]]
) -> None:
    use(monkeypatch, JOB, nodes=None)
    found = gather.look(7, SERVES, FakeClock())
    assert (found.job, queries, found.missing) == (JOB, [], ("Slurm: sinfo: time-out",))


def test_a_job_that_slurm_forgot(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch)
    with pytest.raises(ConfigError, match="rad report 7"):
        gather.look(7, SERVES, FakeClock())
