"""A job that needs more than it booked: fills.py FOLDER WINDOW.

It fills its limit, waits until rad-monitor has seen that, and requests 38 GiB, which its second run has until there is
FOLDER/end. WINDOW is the file that rad-monitor writes at each sample.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from fake_train import visible_gpus

from slurm_plugin.core.units import GIB, from_mib

end, window = Path(sys.argv[1], "end"), Path(sys.argv[2])
(gpu,) = visible_gpus(os.environ)
if "SLURM_RESTART_COUNT" not in os.environ:
    gpu.grow_to(int(0.95 * from_mib(int(os.environ["RAD_CAP_MIB"]))), smact=0.1)
    for _ in range(2):  # the first may have been read before
        before = window.stat().st_mtime_ns
        while window.stat().st_mtime_ns == before:
            time.sleep(0.02)
gpu.grow_to(38 * GIB, smact=0.1)
while not end.exists():
    time.sleep(0.02)
print("38 GiB")
