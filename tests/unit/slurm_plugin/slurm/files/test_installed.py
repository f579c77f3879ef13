from __future__ import annotations

from pathlib import Path

from slurm_plugin.slurm.files import installed


def test_plugins_are_those_of_the_folder_that_slurm_conf_names(tmp_path: Path) -> None:
    (tmp_path / "job_submit_lua.so").touch()
    (tmp_path / "readme.txt").touch()
    assert installed.plugins({"plugindir": f"/nowhere:{tmp_path}"}) == {"job_submit_lua"}


def test_where_no_folder_of_plugins_is_found_nothing_is_claimed() -> None:
    assert installed.plugins({"plugindir": "/nowhere"}) is None
