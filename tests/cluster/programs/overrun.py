"""A job that books little and takes a GPU: its cap does not bind it, because it is the simulation's own.

overrun.py FOLDER: waits for FOLDER/victim, which names a GPU, and takes all but a little of it. Its second run behaves.
overrun.py FOLDER unseen: does so when there is FOLDER/go, and gives it back as soon as the victim has failed.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from slurm_plugin.core.units import GIB, MIB
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus

folder = Path(sys.argv[1])
gpus = SimulatedGpus(Path(os.environ["RAD_SIMULATED_GPUS"], os.environ["SLURMD_NODENAME"]))
if os.environ.get("SLURM_RESTART_COUNT"):
    gpus.hold(os.environ["RAD_GPUS"], 30 * GIB)
    time.sleep(1)
    print("30 GiB of my own")
    sys.exit()
while not (folder / "victim").exists():
    time.sleep(0.02)
uuid = (folder / "victim").read_text()
unseen = sys.argv[2:] == ["unseen"]
while unseen and not (folder / "go").exists():
    time.sleep(0.02)
free = next(reading.free_bytes for reading in gpus.read() if reading.uuid == uuid)
gpus.hold(uuid, free - 100 * MIB)
(folder / "stolen").touch()
print("stole", uuid, flush=True)
if unseen:
    while not (folder / "failed").exists():
        time.sleep(0.02)
    gpus.hold(uuid, 0)
    (folder / "returned").touch()
    sys.exit()
time.sleep(600)
print("was not stopped")
