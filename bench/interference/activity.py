"""Train about 540 models, one at a time on each GPU, and note step time, SM activity, bandwidth and power.

    PYTHONPATH=. python bench/interference/activity.py --out rows [--seconds 540] [--dry-run]

Needs a GPU whose driver has NVML's GPM counters (Hopper or later), torch, torchvision, timm, transformers and
nvidia-ml-py; all GPUs are used at once. Started again with the same folder, it goes on. About 1.7 s a row and GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from gpu_campaign.campaign import run

ROWS = 540

if __name__ == "__main__":
    sys.exit(run(__doc__, rows=ROWS, interference=False))
