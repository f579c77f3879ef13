"""What slurmd finds on a node is compared with what slurm.conf promises of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_plugin.admin.doctor.checks.slurmd_detected import check_detected
from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.finding import Finding
from slurm_plugin.admin.doctor.fixes import LineChange
from slurm_plugin.slurm.files.conf_lines import read_conf
from slurm_plugin.slurm.node.detected import Detected, read_detected

HARDWARE = (
    "NodeName=vm CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 RealMemory=24105\nUpTime=0-15:33:41\n"
)
GRES = """\
slurmd: Node configuration differs from hardware: CPUs=32:2(hw) Boards=1:1(hw)
slurmd: Gres Name=shard Type=simulated Count=39 Index=0 ID=1918986455 File=/dev/gpu0 Links=(null) Flags=SHARED
slurmd: Gres Name=gpu Type=simulated Count=1 Index=0 ID=7696487 File=/dev/gpu0 Links=(null) Flags=HAS_FILE
slurmd: Gres Name=shard Type=simulated Count=39 Index=1 ID=1918986455 File=/dev/gpu1 Links=(null) Flags=SHARED
slurmd: Gres Name=gpu Type=simulated Count=1 Index=1 ID=7696487 File=/dev/gpu1 Links=(null) Flags=HAS_FILE
"""


def reported(folder: Path, line: str, detected: Detected | None, node: str = "n1") -> list[Finding]:
    path = folder / "slurm.conf"
    path.write_text(f"{line}\n")
    facts = Facts(
        config_path=folder / "rad.toml",
        slurm_conf_path=path,
        slurm=read_conf(path),
        node=node,
        detected=detected,
    )
    return list(check_detected(facts))


def test_what_slurmd_prints_is_read() -> None:
    assert read_detected(HARDWARE, GRES) == Detected(memory_mib=24105, gpus=2, shards=78)
    assert read_detected(HARDWARE, "slurmd: error: Unable to find n7 in slurm.conf\n") is None


def test_a_file_of_gres_conf_that_is_no_device_is_found(tmp_path: Path) -> None:
    """slurmd 22.05.8 prints the line twice and registers the GPU all the same; a job on it sees none."""
    error = "slurmd: error: /dev/gpu1 is not a valid character or block device, fix your gres.conf\n"
    here = read_detected(HARDWARE, 2 * error + GRES)
    assert here is not None and (here.gpus, here.no_devices) == (2, ("/dev/gpu1",))
    found = reported(tmp_path, "NodeName=n1 Gres=gpu:2,shard:78", here)
    assert [each.level for each in found] == ["fail", "ok"] and found[0].text.startswith(
        "/dev/gpu1 is no device"
    )
    assert "/dev/nvidia0" in found[0].fix


@pytest.mark.parametrize(
    ("gres", "level"),
    [
        ("gpu:2,shard:78", "ok"),
        ("gpu:a100:2,shard:78", "ok"),
        ("gpu:4,shard:156", "fail"),
        ("gpu:2,shard:79", "fail"),
        ("gpu:2,shard:40", "warn"),
    ],
)
def test_gpus_and_shards(tmp_path: Path, gres: str, level: str) -> None:
    here = Detected(memory_mib=1000, gpus=2, shards=78)
    assert [each.level for each in reported(tmp_path, f"NodeName=n1 Gres={gres}", here)] == [level]


def test_less_memory_than_promised_gets_the_line_that_fixes_it(tmp_path: Path) -> None:
    here = Detected(memory_mib=1000, gpus=1, shards=0)
    line = "NodeName=x NodeHostname=n1 RealMemory=2000 Gres=gpu:1"
    (_, finding) = reported(tmp_path, line, here)
    assert finding.level == "fail" and "x has 1000 MiB" in finding.text
    (action,) = finding.actions
    assert isinstance(action, LineChange) and action.new == line.replace("2000", "1000")
    assert len(reported(tmp_path, f"SlurmdParameters=config_overrides\n{line}", here)) == 1


def test_of_another_machine_nothing_is_said(tmp_path: Path) -> None:
    here = Detected(memory_mib=1, gpus=0, shards=0)
    assert reported(tmp_path, "NodeName=n[1-2] RealMemory=2000 Gres=gpu:1", here, node="login") == []
    assert reported(tmp_path, "NodeName=n1 Gres=gpu:1", None) == []
