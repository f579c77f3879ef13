"""A job that books little and takes a GPU: its cap does not bind it, because it is the simulation's own.

thief.py FOLDER: waits for FOLDER/victim, which names a GPU, and takes all but a little of it. Its second run behaves.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from slurm_plugin.core.units import GIB, MIB
from slurm_plugin.monitor.simulated import SimulatedGpus

folder = Path(sys.argv[1])
gpus = SimulatedGpus(Path(os.environ["RAD_SIMULATED_GPUS"], os.environ["SLURMD_NODENAME"]))
if os.environ.get("SLURM_RESTART_COUNT"):
    gpus.hold(os.environ["CUDA_VISIBLE_DEVICES"], 30 * GIB)
    time.sleep(1)
    print("30 GiB of my own")
    sys.exit()
while not (folder / "victim").exists():
    time.sleep(0.02)
uuid = (folder / "victim").read_text()
free = next(reading.free_bytes for reading in gpus.read() if reading.uuid == uuid)
gpus.hold(uuid, free - 100 * MIB)
(folder / "stolen").touch()
print("stole", uuid, flush=True)
time.sleep(60)
print("was not stopped")
