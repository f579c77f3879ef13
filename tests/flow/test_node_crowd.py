"""Two hundred prologs at once on one node: no reservation is lost, none is given twice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import epilog.__main__
import prolog.__main__
from slurm_plugin.core.binding import partition_mark
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.job_file import JobFile
from slurm_plugin.core.ledger import Ledger
from slurm_plugin.core.ledger_store import LedgerStore, boot_id
from slurm_plugin.core.records import Booking
from slurm_plugin.core.units import GIB, from_mib
from slurm_plugin.core.wire import stamp
from slurm_plugin.monitor.simulated import Card, SimulatedGpus

JOBS = 200
GPUS = 16
KEY = b"c" * 32


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "key").chmod(0o600)
    cards = [
        Card(uuid=f"GPU-{index:02}", index=index, name="simulated", memory_total_bytes=40 * GIB)
        for index in range(GPUS)
    ]
    SimulatedGpus.create(tmp_path / "gpus", cards)
    (tmp_path / "rad.toml").write_text(
        f"""
[paths]
run = "{tmp_path}/run"
state = "{tmp_path}/state"
key = "{tmp_path}/key"
log = "{tmp_path}/log"
slurm_conf = "{tmp_path}/no-slurm.conf"
[telemetry]
source = "simulated"
simulated_folder = "{tmp_path}/gpus"
[partition.gpu]
collocate = true
shards_per_gpu = 40
pin = "free"
"""
    )
    return tmp_path / "rad.toml"


def booking_of(job_id: int) -> Booking:
    """Every tenth job wants a GPU of its own; the others 3 to 9 GiB."""
    if job_id % 10 == 0:
        return Booking(kind="whole", partitions=(partition_mark("gpu"),))
    return Booking(
        kind="shared",
        memory_bytes=(3 + job_id % 7) * GIB,
        shards=3 + job_id % 7,
        partitions=(partition_mark("gpu"),),
    )


def environment(job_id: int, **more: str) -> dict[str, str]:
    return {
        "SLURM_JOB_ID": str(job_id),
        "SLURM_JOB_UID": str(os.geteuid()),
        "SLURM_JOB_GID": str(os.getegid()),
        "SLURM_JOB_PARTITION": "gpu",
        "SLURM_JOB_GPUS": str(job_id % GPUS),
        "SLURM_JOB_COMMENT": stamp(booking_of(job_id), user_id=os.geteuid(), key=KEY),
        **more,
    }


@contextmanager
def all_at_once(hook: object, config: Path, environments: list[dict[str, str]]) -> Iterator[None]:
    """Run a hook in a process of its own for each environment; all wait at a gate until the last one is there."""
    gate_out, gate_in = os.pipe()
    children = []
    for env in environments:
        child = os.fork()
        if child == 0:
            status = 99
            try:
                os.close(gate_in)
                os.read(gate_out, 1)
                os.environ.clear()
                os.environ.update(env)
                prolog.__main__.sys.argv = ["hook", "--config", str(config)]
                status = hook()  # type: ignore[operator]
            finally:
                os._exit(status)
        children.append(child)
    os.close(gate_out)
    os.close(gate_in)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    assert statuses == [0] * len(environments)
    yield


def ledger_of(config: Path) -> Ledger:
    found = LedgerStore(config.parent / "run", clock=SystemClock(), boot_id=boot_id()).read()
    assert not found.lost
    return found.ledger


def test_two_hundred_prologs_at_once(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    numbers = range(1, JOBS + 1)
    with all_at_once(prolog.__main__.main, config, [environment(number) for number in numbers]):
        ledger = ledger_of(config)
        told = {number: JobFile(config.parent / "run", number).variables() for number in numbers}
        placed = {number: env for number, env in told.items() if env}
        refused = {n for n in numbers if JobFile(config.parent / "run", n).refusal() is not None}

        held = {one.job_id: one for one in ledger.reservations}
        assert set(held) == set(placed), "a job that was told its GPU is in the ledger, and no other"
        late = (config.parent / "log" / "prolog.log").read_text().count("left alone:")
        known = len(placed) + len(refused) + late
        killed = capfd.readouterr().err.count(
            "rad: out of time"
        )  # slurmd's log has what a killed hook could not write
        assert known <= JOBS <= known + killed, "every job was placed, sent back or, out of time, given up"
        for number, env in placed.items():
            assert env["CUDA_VISIBLE_DEVICES"] == ",".join(held[number].gpus)
            assert from_mib(int(env["RAD_BOOKED_MIB"])) == held[number].booked_bytes
        for index in range(GPUS):
            on_it = ledger.on(f"GPU-{index:02}")
            assert sum(one.booked_bytes for one in on_it) <= 40 * GIB
            assert len(on_it) <= 1 or all(one.kind == "shared" for one in on_it)
        assert len(placed) > GPUS, "the GPUs are shared"

    # half of the epilogs come twice, all at once
    endings = [environment(n, SLURM_JOB_EXIT_CODE="0") for n in numbers for _ in range(1 + n % 2)]
    with all_at_once(epilog.__main__.main, config, endings):
        left = [one.job_id for one in ledger_of(config).reservations]
        assert len(left) <= capfd.readouterr().err.count("rad: out of time"), (
            "only a killed Epilog leaves anything"
        )
    with all_at_once(epilog.__main__.main, config, [environment(n, SLURM_JOB_EXIT_CODE="0") for n in left]):
        assert ledger_of(config).reservations == ()
        assert list((config.parent / "run" / "placed").iterdir()) == []
