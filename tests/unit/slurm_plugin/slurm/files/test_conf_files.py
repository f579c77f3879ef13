from __future__ import annotations

from pathlib import Path

import pytest

from slurm_plugin.slurm.files.conf_files import (
    away_s,
    devices_confined,
    find_slurm_conf,
    gres_of_nodes,
    has_slurmdbd,
    settings_of,
    why_no_shards,
)


@pytest.mark.parametrize(
    ("slurm", "cgroup", "confined"),
    [
        ("TaskPlugin=task/cgroup,task/affinity", "ConstrainDevices=yes", True),
        ("taskplugin = task/affinity,task/cgroup # both", "  constraindevices=YES", True),
        ("TaskPlugin=task/cgroup", "#ConstrainDevices=yes", False),
        ("TaskPlugin=task/cgroup", "ConstrainDevices=no", False),
        ("TaskPlugin=task/none", "ConstrainDevices=yes", False),
        ("#TaskPlugin=task/cgroup", "ConstrainDevices=yes", False),
        ("TaskPlugin=task/cgroup", None, False),
    ],
)
def test_devices_are_confined_only_by_both_files(
    tmp_path: Path, slurm: str, cgroup: str | None, confined: bool
) -> None:
    (tmp_path / "slurm.conf").write_text(f"ClusterName=x\n{slurm}\n")
    if cgroup is not None:
        (tmp_path / "cgroup.conf").write_text(f"{cgroup}\n")
    assert devices_confined(tmp_path / "slurm.conf") is confined


def test_without_slurm_conf_nothing_is_known_to_be_confined(tmp_path: Path) -> None:
    assert not devices_confined(None)
    assert not devices_confined(tmp_path / "none.conf")


def test_the_configured_file_comes_first(tmp_path: Path) -> None:
    for name in ("a.conf", "b.conf"):
        (tmp_path / name).write_text("")
    env = {"SLURM_CONF": str(tmp_path / "b.conf")}
    assert find_slurm_conf(str(tmp_path / "a.conf"), env) == tmp_path / "a.conf"
    assert find_slurm_conf("", env) == tmp_path / "b.conf"


def test_settings_come_from_included_files_too(tmp_path: Path) -> None:
    (tmp_path / "rad.conf").write_text(
        "GresTypes=gpu,shard # both\nAccountingStorageType=accounting_storage/slurmdbd\n"
    )
    (tmp_path / "slurm.conf").write_text(
        "GresTypes=gpu\nJobSubmitPlugins = \\\n lua\nInclude rad.conf\nInclude none\n"
    )
    settings = settings_of(tmp_path / "slurm.conf")
    assert settings["grestypes"] == "gpu,shard"
    assert settings["jobsubmitplugins"] == "lua"
    assert has_slurmdbd(tmp_path / "slurm.conf")


def test_a_file_that_includes_itself_is_read_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("GresTypes=gpu,shard\nInclude slurm.conf\n")
    assert settings_of(tmp_path / "slurm.conf") == {"grestypes": "gpu,shard"}


@pytest.mark.parametrize(
    ("lines", "gres", "offers"),
    [
        ("NodeName=n[1-4] CPUs=4 Gres=gpu:4,shard:160 State=UNKNOWN", ("gpu:4,shard:160",), True),
        ("nodename = n1 \\\n  cpus=4 GRES=GPU:4 # shard:160", ("gpu:4",), False),
        (
            "NodeName=cpu1 CPUs=4\nNodeName=n1 Gres=gpu:4\nNodeName=n2 Gres=shard:4,gpu:1",
            ("gpu:4", "shard:4,gpu:1"),
            True,
        ),
        ("NodeName=cpu1 CPUs=4", (), True),
        ("#NodeName=n1 Gres=gpu:4", (), True),
    ],
)
def test_shards_are_offered_where_a_node_has_some(
    tmp_path: Path, lines: str, gres: tuple[str, ...], offers: bool
) -> None:
    (tmp_path / "nodes.conf").write_text(f"{lines}\n")
    (tmp_path / "slurm.conf").write_text("GresTypes=gpu,shard\nInclude nodes.conf\n")
    assert gres_of_nodes(tmp_path / "slurm.conf") == gres
    settings = settings_of(tmp_path / "slurm.conf")
    assert (why_no_shards(settings, gres) is None) == offers


def test_nothing_is_claimed_of_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    none = tmp_path / "none.conf"
    assert why_no_shards(settings_of(none), gres_of_nodes(none)) is None


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        ("SlurmctldHost=a", 0.0),
        ("SlurmctldHost=a(10.0.0.1)\nSlurmctldHost=b", 2.0),
        ("SlurmctldHost=a\nSlurmctldHost=b\nSlurmctldHost=c\nTCPTimeout=5", 10.0),
        ("ControlMachine=a\nBackupController=b\ntcptimeout = 3", 3.0),
    ],
)
def test_each_further_slurmctld_may_take_a_command_tcp_timeout(
    tmp_path: Path, lines: str, seconds: float
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"ClusterName=x\n{lines}\n")
    assert away_s(conf) == seconds
    assert away_s(None) == 0.0
