"""A training on simulated GPUs: holds memory, sleeps through its steps, slowed as its neighbours would slow it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from replay.job.record import Record
from slurm_plugin.core.units import from_mib
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.monitor.gpus.simulated_gpus import GpuFullError
from slurm_plugin.simulate.gpus.interference import Load, slowdowns

LOOK_S = 0.5
"""How often it looks for its neighbours."""


class FaultError(Exception):
    """What a client of an MPS server gets when another one faults."""


def _server_ended(*_: object) -> None:
    raise FaultError("torch.AcceleratorError: CUDA error: an illegal memory access was encountered")


def train(job: dict[str, Any], *, called_s: float) -> int:
    """Train; return the exit status."""
    record = Record(job, called_s=called_s)
    signal.signal(signal.SIGUSR1, _server_ended)  # lab/simulated_mps.py
    folder = Path(os.environ["RAD_SIMULATED_GPUS"], os.environ["SLURMD_NODENAME"])
    gpus = SimulatedGpus(folder)
    named = os.environ.get("RAD_GPUS") or os.environ["CUDA_VISIBLE_DEVICES"]
    uuid, *others = (_uuid(gpus, token) for token in named.split(","))
    duty = min(1.0, job["step_s"] / job["period_s"])
    load = Load(
        smact=job["smact"],
        busy=job["busy"],
        duty=duty,
        kernel_s=job["kernel_s"],
        halves=job["gpus"] > 1,
        exchanges_per_s=job["exchanges_per_s"],
    )
    loads = Path(job["records"], "loads")
    own = loads / f"{os.getpid()}.json"
    helpers = [_hold(gpus, other, from_mib(job["memory_mib"]), load.mean_smact) for other in others]
    try:
        cap = os.environ.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "")
        cap_bytes = from_mib(int(cap.removeprefix("0=").removesuffix("M"))) if cap else None
        gpus.hold(uuid, from_mib(job["memory_mib"]), cap_bytes=cap_bytes, smact=load.mean_smact)
        own.write_text(json.dumps({"uuids": [uuid, *others], "load": asdict(load)}))
        record.note("trains_s")
        _steps(job, record, (uuid, *others), load, loads, gpus)
    except GpuFullError as full:
        print(
            f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {job['memory_mib']}.00 MiB. {full}"
        )
        record.close("oom")
        return 1
    except FaultError as exc:
        print(exc, flush=True)
        record.close("failed")
        return 1
    finally:
        own.unlink(missing_ok=True)
        gpus.release()
        for pid in helpers:
            os.kill(pid, signal.SIGKILL)
    record.close("ok")
    return 0


def _hold(gpus: SimulatedGpus, uuid: str, memory_bytes: int, smact: float) -> int:
    """Hold memory of one more GPU in a process of its own, as one process holds one simulated GPU; return its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            gpus.hold(uuid, memory_bytes, smact=smact)
            signal.pause()
        finally:
            os._exit(1)
    return pid


def _steps(
    job: dict[str, Any], record: Record, devices: Sequence[str], load: Load, loads: Path, gpus: SimulatedGpus
) -> None:
    done, shown = 0.0, 0.0
    before_s = time.monotonic()
    while done < job["steps"]:
        neighbours = _neighbours(loads)
        factor = max(
            slowdowns([own, *(other for used_gpus, other in neighbours if gpu in used_gpus)])[0]
            for gpu, own in zip(
                devices, (load, *(replace(load, exchanges_per_s=0.0) for _ in devices[1:])), strict=True
            )
        )
        if factor != shown:
            gpus.set_smact(load.mean_smact / factor)
            shown = factor
        step_s = job["period_s"] * factor
        time.sleep(min(LOOK_S, (job["steps"] - done) * step_s))
        now_s = time.monotonic()
        after = min(float(job["steps"]), done + (now_s - before_s) / step_s)
        record.ends += [before_s + (k - done) * step_s for k in range(int(done) + 1, int(after + 1e-9) + 1)]
        before_s, done = now_s, after


def _neighbours(loads: Path) -> list[tuple[list[str], Load]]:
    """Return GPUs and load of every other training that runs."""
    found = []
    for path in loads.glob("*.json"):
        if path.stem != str(os.getpid()) and Path(f"/proc/{path.stem}").exists():
            try:
                row = json.loads(path.read_text())
            except (OSError, ValueError):
                continue
            found.append((row["uuids"], Load(**row["load"])))
    return found


def _uuid(gpus: SimulatedGpus, token: str) -> str:
    """Return the GPU that a job was given, by UUID or by index."""
    return next(gpu.uuid for gpu in gpus.gpus() if token in (gpu.uuid, str(gpu.index)))
