"""Two files of the same runs are compared."""

from __future__ import annotations

from typing import Any

import pytest

from gpumemnet.learning.dataset.compare import compare
from gpumemnet.units import GIB, MIB


def row(index: int, gpu: str, reserved_bytes: int, base_bytes: int, outcome: str = "ok") -> dict[str, Any]:
    memory = {"reserved_peak_bytes": reserved_bytes, "base_bytes": base_bytes}
    memory["process_peak_bytes"] = reserved_bytes + base_bytes
    return {"seed": 1, "index": index, "variant": 0, "gpu": gpu, "outcome": outcome} | memory


def test_only_runs_in_both_files_count() -> None:
    here = [row(0, "H100", GIB, 740 * MIB), row(1, "H100", 2 * GIB, 740 * MIB), row(2, "H100", GIB, 0)]
    there = [row(0, "H200", GIB, 742 * MIB), row(1, "H200", GIB, 742 * MIB), row(2, "H200", GIB, 0, "oom")]
    first, second, third = compare(here, there).splitlines()
    assert first == "H100 against H200: 2 runs"
    assert "the same to the byte in 1" in second and "+100.0%" in second
    assert "median difference -2 MiB" in third


def test_nothing_in_common_is_said() -> None:
    with pytest.raises(ValueError, match="no run is in both"):
        compare([row(0, "H100", GIB, 0)], [row(1, "H200", GIB, 0)])
