"""What a partition gives for each GPU becomes part of the request, unless the user states something else."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_plugin.core.booking.gpu_defaults import GpuDefaults, with_gpu_defaults
from slurm_plugin.core.booking.request import request_from

DEFAULTS = {
    "": GpuDefaults(cpus=2),
    "gpu": GpuDefaults(cpus=4, memory_mib=3000),
    "large": GpuDefaults(cpus=8, memory_mib=1000),
    "none": GpuDefaults(),
}


def stated(**message: Any) -> tuple[int | None, int | None]:
    request = request_from({"user_id": 1000, "tres_per_job": "gres:gpu:1", **message})
    made = with_gpu_defaults(request, DEFAULTS, "gpu")
    return made.cpus_per_gpu, made.memory_per_gpu_mib


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({}, (4, 3000)),
        ({"partition": "large"}, (8, 1000)),
        ({"partition": "none"}, (None, None)),
        ({"partition": "elsewhere"}, (2, None)),
        ({"partition": "gpu,large"}, (8, 3000)),
        ({"cpus_per_task": 1}, (None, 3000)),
        ({"cpus_per_task": 65534}, (4, 3000)),
        ({"cpus_per_tres": "gpu:1"}, (1, 3000)),
        ({"min_mem_per_node": 500}, (4, None)),
        ({"min_mem_per_node": 0}, (4, None)),
        ({"min_mem_per_cpu": 500}, (4, None)),
        ({"mem_per_tres": "gpu:500"}, (4, 500)),
        ({"tres_per_job": "", "gres": "gres:shard:3"}, (None, None)),
        ({"tres_per_job": ""}, (None, None)),
    ],
)
def test_what_the_user_states_comes_first(
    message: dict[str, Any], expected: tuple[int | None, int | None]
) -> None:
    assert stated(**message) == expected
