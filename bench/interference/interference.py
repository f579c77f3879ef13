"""Run trainings in pairs, triples and larger groups on each GPU, with MPS and without, and note each one's steps.

    PYTHONPATH=. python bench/interference/interference.py --out rows [--seconds 540] [--dry-run]

Needs what bench/interference/activity.py needs, 125 GiB of GPU memory (residents that do not fit are left out) and
nvidia-cuda-mps-control; the script starts and ends an MPS daemon of its own for each GPU.
`python bench/interference/fit.py` fits the model.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from gpu_campaign.campaign import run

if __name__ == "__main__":
    sys.exit(run(__doc__, rows=0, interference=True))
