"""A training without torch that stops and goes on as examples/resume does: resumes.py EXAMPLES CHECKPOINTS [GROWS].

Each of its steps takes a fifth of a second and prints a line. With GROWS the first run requests more than it booked at
that step.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path[:0] = [sys.argv[1], f"{sys.argv[1]}/resume"]
from checkpoint import Slot, newest, save  # noqa: E402
from fake_train import visible_gpus  # noqa: E402

from slurm_plugin.core.units import GIB, from_mib  # noqa: E402

STEPS, EVERY = 16, 5
folder = Path(sys.argv[2])
grows = int(sys.argv[3]) if len(sys.argv) > 3 else None
restarts = int(os.environ.get("SLURM_RESTART_COUNT", "0"))

slot = Slot()
(gpu,) = visible_gpus(os.environ)
gpu.grow_to(from_mib(3900), smact=0.1)
path = newest(folder)
step = 0 if path is None else int(path.read_text())
print(f"from step {step}, restarts: {restarts}", flush=True)
while step < STEPS:
    time.sleep(0.2)
    step += 1
    print(f"step {step}", flush=True)
    if step == grows and restarts == 0:
        gpu.grow_to(30 * GIB, smact=0.1)
    while step == STEPS - 2 and grows is None and restarts == 0 and not slot.is_over:
        time.sleep(0.1)  # the test stops this run
    if slot.is_over or step % EVERY == 0:
        save(folder, step, lambda file, done=b"%d" % step: file.write(done) and None)
    if slot.is_over:
        slot.come_back()
print("done", flush=True)
