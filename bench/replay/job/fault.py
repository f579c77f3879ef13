"""Faulty job in place of a training: holds memory, computes, and writes to an impossible address.

    python -IS fault.py JOB.json

It is a process of the job itself and not of a server of trainings, so the kernel shows whose it is.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

LEAST_S = 3.0
"""Time that it computes before its fault: rad-monitor samples each second."""
PAUSE_S = 0.01


def main() -> int:
    """Compute for half of the training's time, then fault; return the exit status."""
    from replay.job.record import Record

    job = json.loads(Path(sys.argv[1]).read_text())
    record = Record(job, called_s=time.time())
    memory_mib = max(64, job["memory_mib"] // 4)
    fault = _simulated if "RAD_SIMULATED_GPUS" in os.environ else _real
    fault(record, memory_mib, time.monotonic() + max(LEAST_S, job["alone_s"] / 2), Path(job["records"]))
    return 1


def _real(record: Any, memory_mib: int, until_s: float, _records: Path) -> None:
    from replay.job.cuda_client import PTX, Cuda, take

    cuda, module, function = Cuda(), ctypes.c_void_p(), ctypes.c_void_p()
    cuda.cuInit(0)
    memory = take(cuda, 0, memory_mib)
    cuda.cuModuleLoadData(ctypes.byref(module), PTX)
    cuda.cuModuleGetFunction(ctypes.byref(function), module, b"fault")
    record.note("trains_s")
    while time.monotonic() < until_s:
        cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(1), ctypes.c_size_t(memory_mib << 20))
        cuda.cuCtxSynchronize()
        time.sleep(PAUSE_S)
    record.close("fault")
    cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    cuda.cuCtxSynchronize()  # prints CUDA's error and ends this process


def _simulated(record: Any, memory_mib: int, until_s: float, records: Path) -> None:
    from slurm_plugin.monitor.gpus.simulated import SimulatedGpus

    gpus = SimulatedGpus(Path(os.environ["RAD_SIMULATED_GPUS"], os.environ["SLURMD_NODENAME"]))
    shown = os.environ.get("RAD_GPUS") or os.environ["CUDA_VISIBLE_DEVICES"]
    gpus.hold(
        next(gpu.uuid for gpu in gpus.gpus() if shown in (gpu.uuid, str(gpu.index))),
        memory_mib << 20,
        smact=0.1,
    )
    record.note("trains_s")
    time.sleep(max(0.0, until_s - time.monotonic()))
    record.close("fault")
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(1))  # lab/simulated_mps.py
    (records / f"{os.getpid()}.fault").touch()
    time.sleep(30.0)


if __name__ == "__main__":
    sys.exit(main())
