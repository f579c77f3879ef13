"""A job that grows when it is ordered to: grower.py FOLDER NAME [MIB].

It holds 1 GiB, waits for FOLDER/grow.NAME, and grows to MIB, or to what that file says, until there is FOLDER/end. A
second run stays small.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from fake_train import visible_gpus

from slurm_plugin.core.units import GIB, from_mib

reported, end = Path(sys.argv[1], f"grow.{sys.argv[2]}"), Path(sys.argv[1], "end")
(gpu,) = visible_gpus(os.environ)
gpu.grow_to(GIB, smact=0.1)
if os.environ.get("SLURM_RESTART_COUNT", "0") != "0":
    sys.exit()
while not reported.exists():
    time.sleep(0.02)
mib = int(reported.read_text() or sys.argv[3])
gpu.grow_to(from_mib(mib), smact=0.1)
while not end.exists():
    time.sleep(0.02)
print(f"held {mib} MiB of at most {os.environ['RAD_CAP_MIB']}")
