"""Simulate an MPS server that a client's fault hits: it logs what a real one logs, and ends all its clients."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from lab.watch import job_of
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.mps.daemon import LOG
from slurm_plugin.mps.simulated import FOLDER
from slurm_plugin.mps.state import read_state

SERVER_ENDS = signal.SIGUSR1
"""What its clients get in place of CUDA's error."""
LINE = "[{} Server     1] {}\n"


def end_server(run: Path, gpus: Path, pid: int) -> tuple[int, ...]:
    """End all clients of the server that a process is a client of, as if that process had faulted; return their pids.

    Args:
        run: `paths.run` of the node.
        gpus: Folder of its simulated GPUs.
        pid: The process, which holds memory of a simulated GPU.
    """
    culprit = job_of(pid)
    readings = SimulatedGpus(gpus).read()
    for folder in sorted((run / FOLDER).glob("*/*/state.json")):
        jobs = read_state(folder.parent).jobs
        if culprit is None or culprit[0] not in jobs:
            continue
        gpu = next(one for one in readings if one.uuid == folder.parent.parent.name)
        clients = [one.pid for one in gpu.processes if (key := job_of(one.pid)) and key[0] in jobs]
        named = next((client for client in clients if client != pid), pid)  # as a real one often does
        texts = (
            f"Client {{PID: {named}, Context: 1}} encountered a fatal GPU error.",
            "The following client process have a sticky error set:",
            *map(str, clients),
            "End of the list",
        )
        now = time.strftime("%Y-%m-%d %H:%M:%S.000")
        with (folder.parent / LOG).open("a") as log:
            log.writelines(LINE.format(now, text) for text in texts)
        for client in clients:
            os.kill(client, SERVER_ENDS)
        return tuple(clients)
    return ()
