"""The Prolog, which waits longer for rad-monitor's next sample: on a slow machine that comes late."""

from __future__ import annotations

import sys

from prolog import hook
from prolog.__main__ import main
from slurm_plugin.monitor import next_sample

hook.SOON_S, next_sample.NEXT_SAMPLE_S = 3.0, 4.0  # together below the limit of a Prolog's work
sys.exit(main())
