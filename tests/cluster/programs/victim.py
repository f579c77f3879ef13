"""An honest job: victim.py FOLDER shows its GPU, and grows within its booking once FOLDER/stolen is there.

Where that fails, there is FOLDER/failed.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from fake_train import visible_gpus

from slurm_plugin.core.units import GIB

folder = Path(sys.argv[1])
(gpu,) = visible_gpus(os.environ)
gpu.grow_to(2 * GIB, smact=0.1)
(folder / "draft").write_text(gpu.name)
(folder / "draft").replace(folder / "victim")
while not (folder / "stolen").exists():
    time.sleep(0.02)
try:
    gpu.grow_to(6 * GIB, smact=0.1)
except RuntimeError:
    (folder / "failed").touch()
    raise
print("6 GiB, as booked")
