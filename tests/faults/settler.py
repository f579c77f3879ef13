"""A job that holds what it is told to: settler.py FOLDER NAME.

FOLDER/to.NAME holds the MiB that it takes next, or the word `end`. A second run ends at once.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from fake_train import visible_gpus

from slurm_plugin.core.units import from_mib

told = Path(sys.argv[1], f"to.{sys.argv[2]}")
(gpu,) = visible_gpus(os.environ)
last = ""
while os.environ.get("SLURM_RESTART_COUNT", "0") == "0":
    word = told.read_text() if told.exists() else ""
    if word == "end":
        break
    if word != last:
        gpu.grow_to(from_mib(int(word)), smact=0.1)
        last = word
    time.sleep(0.1)
print(f"held {last} MiB")
