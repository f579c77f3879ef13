"""Which jobs run under MPS, and what their tasks find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.bare_node import make_bare_node
from prolog.environment import environment_of, mps_of, visible_devices
from prolog.job_server import with_server
from prolog.place import Placed
from slurm_plugin import mps
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config.load import Features, PartitionConfig, load_config
from slurm_plugin.core.errors import MpsError
from slurm_plugin.core.logs.hook_log import HookLog
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.records.node import Allocation, Demand, Placement
from slurm_plugin.core.units import GIB
from slurm_plugin.node.facts import NodeGpu
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.node.hook_env import HookJob

JOB = HookJob(job_id=7, user_id=1000, group_id=1000, partition="gpu")
ALLOCATION = Allocation(
    job_id=7,
    user_id=1000,
    kind="shared",
    gpus=("GPU-0",),
    gpu_indices=(0,),
    booked_bytes=4 * GIB,
    cap_bytes=5 * GIB,
    created_s=1.0,
)
READING = GpuReading(
    uuid="GPU-0",
    index=0,
    name="a GPU",
    memory_total_bytes=10 * GIB,
    memory_reserved_bytes=GIB,
    memory_used_bytes=0,
    time_s=0.0,
    smact=0.0,
    smact_source="nvml-gpm",
)


class FakeMps:
    """Remembers the requests; it may be out of order."""

    requests: list[dict[str, Any]]
    works = True

    def __init__(self, run: Path, *, clock: object) -> None:
        pass

    def acquire(self, **request: Any) -> dict[str, str]:
        if not self.works:
            raise MpsError("it does not start")
        self.requests.append(request)
        return {"CUDA_MPS_PIPE_DIRECTORY": "/pipe"}


@pytest.fixture(autouse=True)
def servers(monkeypatch: pytest.MonkeyPatch) -> type[FakeMps]:
    FakeMps.requests, FakeMps.works = [], True
    monkeypatch.setattr(mps, "Mps", FakeMps)
    return FakeMps


def environment(
    folder: Path,
    allocation: Allocation = ALLOCATION,
    *,
    on: bool = True,
    source: str = "nvml",
    **settings: Any,
) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    config = load_config(make_bare_node(folder, gpus=1, gpu_gib=10))
    telemetry = replace(config.telemetry, source=source)  # type: ignore[arg-type]
    node = Node.here(replace(config, features=Features(mps=on), telemetry=telemetry), {})
    log = HookLog(str(folder / "log"), "prolog", job_id=7, clock=SystemClock())
    placed = Placed(
        placement=Placement(gpus=allocation.gpus, reason="magm"), allocation=allocation, reading=READING
    )
    partition = PartitionConfig(collocate=True, **settings)
    demand = with_server(
        Demand(
            job_id=7,
            user_id=1000,
            kind=allocation.kind,
            gpus=len(allocation.gpus),
            booked_bytes=4 * GIB,
            gpu_indices=allocation.gpu_indices,
        ),
        node,
        JOB,
        partition,
    )
    mps = mps_of(node, JOB, placed, partition, demand, log)
    return {"no MPS": ""} if mps is None else environment_of(node, JOB, placed, partition, mps=mps)


def test_a_shared_job_runs_under_mps_up_to_its_cap(tmp_path: Path, servers: type[FakeMps]) -> None:
    found = environment(tmp_path)
    assert (found["CUDA_VISIBLE_DEVICES"], found["CUDA_MPS_PIPE_DIRECTORY"]) == ("0", "/pipe")
    assert (found["RAD_BOOKED_MIB"], found["RAD_CAP_MIB"]) == ("4096", "5120")
    (request,) = servers.requests
    assert (request["gpu"], request["user_id"], request["job_id"]) == ("GPU-0", 1000, 7)
    assert (request["cap_bytes"], request["gpu_bytes"]) == (5 * GIB, READING.usable_bytes)


def test_where_the_site_wants_no_cap_mps_sets_none(tmp_path: Path, servers: type[FakeMps]) -> None:
    environment(tmp_path, memory_cap=False)
    assert [request["cap_bytes"] for request in servers.requests] == [None]


@pytest.mark.parametrize(
    ("allocation", "more"),
    [
        (replace(ALLOCATION, kind="whole"), {}),
        (replace(ALLOCATION, gpus=("GPU-0", "GPU-1"), gpu_indices=(0, 1)), {}),
        (ALLOCATION, {"on": False}),
        (ALLOCATION, {"sharing": "streams"}),
    ],
    ids=["alone", "several GPUs", "mps = false", "streams"],
)
def test_jobs_that_run_without_mps(
    tmp_path: Path, servers: type[FakeMps], allocation: Allocation, more: dict[str, Any]
) -> None:
    found = environment(tmp_path, allocation, **more)
    assert not servers.requests and "CUDA_MPS_PIPE_DIRECTORY" not in found
    assert found["CUDA_VISIBLE_DEVICES"] == ",".join(allocation.gpus), "the node's GPUs are not known"


PHYSICAL_GPUS = tuple(NodeGpu(uuid=f"GPU-{at}", index=at, usable_bytes=GIB) for at in (3, 0, 1))


@pytest.mark.parametrize(
    ("gpus", "form", "confined", "served", "named"),
    [
        (("GPU-0",), "index", False, False, "1"),
        (("GPU-1", "GPU-3"), "index", False, False, "2,0"),
        (("GPU-3",), "index", False, True, "0"),
        (("GPU-1",), "index", False, True, "0"),
        (("GPU-1",), "index", True, True, None),
        (("GPU-1",), "uuid", True, True, "GPU-1"),
        (("GPU-1", "GPU-3"), "uuid", False, False, "GPU-1,GPU-3"),
        (("GPU-9",), "index", False, False, "GPU-9"),
    ],
)
def test_gpus_are_named_as_slurm_names_them(
    gpus: tuple[str, ...], form: str, confined: bool, served: bool, named: str | None
) -> None:
    assert visible_devices(gpus, PHYSICAL_GPUS, form=form, confined=confined, served=served) == named


def test_next_to_mig_a_number_could_be_an_instance() -> None:
    physical_gpus = (*PHYSICAL_GPUS, NodeGpu(uuid="GPU-7", index=7, usable_bytes=GIB, mig=True))
    found = visible_devices(("GPU-0",), physical_gpus, form="index", confined=False, served=False)
    assert found == "GPU-0"


def test_an_mps_that_does_not_start_is_distinguished_from_one_that_no_job_wants(
    tmp_path: Path, servers: type[FakeMps]
) -> None:
    servers.works = False
    assert environment(tmp_path) == {"no MPS": ""}
    assert "it does not start" in (tmp_path / "log" / "prolog.log").read_text()
    assert "no MPS" not in environment(tmp_path / "other", on=False)


def test_simulated_gpus_cap_and_may_fail_to(tmp_path: Path) -> None:
    found = environment(tmp_path, source="simulated")
    assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=5120M"
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in environment(
        tmp_path / "off", on=False, source="simulated"
    )
    (tmp_path / "gpus" / "no-mps").touch()
    assert environment(tmp_path, source="simulated") == {"no MPS": ""}
