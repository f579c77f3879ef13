"""These tests need the second distribution, rad-slurm-train, or a checkout."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("gpumemnet.learning.dataset") else ["test_*.py"]
