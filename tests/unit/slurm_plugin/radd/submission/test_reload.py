"""What is in force is the last rad.toml that was right, whatever was written since."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from fakes import FakeClock, FakeSlurm
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_plugin.core.errors import ConfigError, SlurmError
from slurm_plugin.radd.submission.reload import Reloader
from slurm_plugin.slurm.versions import OLDEST

RAD_TOML = """
mode = "{mode}"
{estimator}
default_partition = "gpu"
[paths]
key = "{folder}/key"
state = "{folder}/state"
socket = "{folder}/radd.sock"
slurm_conf = "{folder}/slurm.conf"
[partition.gpu]
collocate = true
gpu_memory_mib = 40000
"""
MODES = ("enforce", "observe", "off", "observed")
"""The last is not a mode."""


def write(folder: Path, mode: str = "enforce", estimator: str = "") -> Path:
    (folder / "key").write_bytes(bytes(32))
    (folder / "key").chmod(0o600)
    (folder / "slurm.conf").write_text("GresTypes=gpu,shard\nJobSubmitPlugins=lua\n")
    text = RAD_TOML.format(mode=mode, estimator=estimator, folder=folder)
    (folder / "rad.toml").write_text(text)
    return folder / "rad.toml"


def reloads(made: Reloader) -> bool:
    try:
        made.reload()
    except ConfigError:
        return False
    return True


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(MODES), st.sampled_from(["", 'estimator = "unknown"'])), max_size=5)
)
def test_a_wrong_file_changes_nothing(changes: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = Reloader(write(Path(folder)), FakeSlurm(), FakeClock())
        expected = "enforce"
        for mode, estimator in changes:
            write(Path(folder), mode, estimator)
            right = mode != "observed" and not estimator
            assert reloads(made) == right
            expected = mode if right else expected
            assert made.config.mode == expected == made.submission.config.mode
            made.look()
            assert made.config.mode == expected


def test_the_shim_reads_a_new_mode_and_that_radd_still_runs(tmp_path: Path) -> None:
    clock = FakeClock()
    made = Reloader(write(tmp_path), FakeSlurm(), clock)
    made.leave_fallback()
    path = tmp_path / "radd" / "fallback.json"
    first = json.loads(path.read_text())
    assert list(first["partitions"]) == ["gpu"]
    write(tmp_path, "off")
    made.reload()
    assert json.loads(path.read_text())["partitions"] == {}
    clock.sleep(60)
    made.look()
    assert json.loads(path.read_text())["until_s"] == first["until_s"]
    clock.sleep(300)
    made.look()
    assert json.loads(path.read_text())["until_s"] > first["until_s"]


class UpgradedSlurm(FakeSlurm):
    """Slurm whose commands and slurmctld are upgraded one after the other."""

    installed, running = (22, 5, 8), "22.05.8"

    def version(self) -> tuple[int, int, int]:
        return self.installed

    def config(self) -> dict[str, str]:
        if not self.running:
            raise SlurmError("slurm_load_ctl_conf error: Protocol authentication error")
        return {"SLURM_VERSION": self.running}


def test_an_upgraded_slurm_counts_once_its_slurmctld_runs(tmp_path: Path) -> None:
    slurm = UpgradedSlurm()
    made = Reloader(write(tmp_path), slurm, FakeClock())
    made.look()
    assert made.submission.whole_as_gpu == {"gpu": False}
    slurm.installed = (24, 11, 5)
    for slurm.running in ("22.05.8", "", "24.11.5"):
        assert made.version == (22, 5, 8)
        made.look()
    assert made.version == (24, 11, 5)
    assert made.submission.whole_as_gpu == {"gpu": True}
    fallback = json.loads((tmp_path / "radd" / "fallback.json").read_text())
    assert fallback["partitions"] == {}, "the shim leaves whole GPUs as they are, too"


def test_a_version_that_was_not_known_at_the_start_is_learned(tmp_path: Path) -> None:
    slurm = UpgradedSlurm()
    slurm.installed, slurm.running = OLDEST, ""
    made = Reloader(write(tmp_path), slurm, FakeClock())
    slurm.installed, slurm.running = (26, 5, 5), "26.05.5"
    made.look()
    assert made.version == (26, 5, 5)


def test_radd_does_not_start_without_a_key(tmp_path: Path) -> None:
    path = write(tmp_path)
    (tmp_path / "key").unlink()
    with pytest.raises(ConfigError, match="key"):
        Reloader(path, FakeSlurm(), FakeClock())
