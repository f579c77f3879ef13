"""Which GPU a name stands for."""

from __future__ import annotations

import pytest

from gpumemnet.errors import SetupError
from gpumemnet.gpus import gpu_named, gpu_of_memory
from gpumemnet.units import GIB


@pytest.mark.parametrize("name", ["h200", "NVIDIA H200", "nvidia_h200-141gb", "H200NVL"])
def test_a_name_is_found_within_what_slurm_and_the_driver_say(name: str) -> None:
    assert gpu_named(name).name == "h200"


@pytest.mark.parametrize("name", ["a1000", "NVIDIA RTX A1000", "h1000", "a10", ""])
def test_another_model_is_not_taken_for_one_with_a_shorter_number(name: str) -> None:
    with pytest.raises(SetupError, match="unknown GPU"):
        gpu_named(name)
    assert gpu_of_memory(name, 8 * GIB).memory_bytes == 8 * GIB
