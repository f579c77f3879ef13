"""The back end that rad.toml names."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config.load import parse_config
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.slurm.backend import open_control
from slurm_plugin.slurm.commands import SlurmCommands


def test_commands_need_nothing() -> None:
    config = parse_config({}, origin="rad.toml")
    assert isinstance(open_control(config, SystemClock()), SlurmCommands)


def test_pyslurm_without_a_slurm_conf_is_refused_before_it_can_end_the_process(tmp_path: Path) -> None:
    missing = tmp_path / "slurm.conf"
    config = parse_config(
        {"slurm_backend": "pyslurm", "paths": {"slurm_conf": str(missing)}}, origin="rad.toml"
    )
    with pytest.raises(SlurmError, match=r"slurm\.conf"):
        open_control(config, SystemClock())
