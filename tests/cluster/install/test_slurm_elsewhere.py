"""A site whose slurm.conf is not in /etc/slurm, and whose daemons and users have no SLURM_CONF."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from slurm_plugin.core.config.load import load_config
from slurm_plugin.core.errors import CommandError
from tests.cluster.commands.test_documents import mounts_apart
from tests.cluster.install.test_edit_slurm import UNITS

pytestmark = pytest.mark.cluster


@pytest.fixture
def conf(cluster: Cluster, tmp_path: Path) -> Path:
    """Return the cluster's slurm.conf at a place that no program knows by itself."""
    etc = tmp_path / "opt/slurm/etc"
    etc.mkdir(parents=True)
    for path in cluster.place.etc.glob("*.conf"):
        shutil.copy(path, etc)
    return etc / "slurm.conf"


def rad(cluster: Cluster, *words: str | Path, conf: Path | None = None) -> str:
    """Return the output of `rad` where systemd's folders are empty and SLURM_CONF is as given, or unset."""
    variable = ("-u", "SLURM_CONF") if conf is None else (f"SLURM_CONF={conf}",)
    shell = ("env", *variable, f"{cluster.place.venv}/bin/rad", *map(str, words))
    return cluster.slurm("unshare", *mounts_apart(), "bash", "-c", UNITS, "_", *shell)


def test_what_install_writes_finds_slurm_without_its_variable(
    cluster: Cluster, jobs: Jobs, conf: Path, tmp_path: Path
) -> None:
    etc = tmp_path / "rad"
    new = ("--etc", etc, "--node", "n0", "--gpus", "4", "--gpu-memory-mib", "40330")
    rad(cluster, "install", *new, conf=conf)
    rad_toml = etc / "rad.toml"
    job = jobs.accepted("--hold", "--gpus=1", "--wrap", "true")
    look = ("why", str(job), "--config", rad_toml)
    assert str(job) in rad(cluster, *look)
    assert load_config(rad_toml).paths.slurm_conf == str(conf)
    assert f"{conf} was read" in rad_doctor(cluster, rad_toml)
    moved = conf.rename(
        conf.with_name("moved.conf")
    )  # as rad.toml on a machine that has slurm.conf elsewhere
    assert str(job) in rad(cluster, *look, conf=moved)
    moved.rename(conf)
    settings = conf.parent / "rad/rad_settings.lua"
    assert f"keep {settings}" in rad(cluster, "install", *new), "found by rad.toml"
    with pytest.raises(CommandError, match=f"keep {conf.parent}/rad/.*: Slurm still names it"):
        rad(cluster, "uninstall", "--etc", etc)


def test_where_only_a_shell_knows_slurm_conf_doctor_says_so(
    cluster: Cluster, conf: Path, tmp_path: Path
) -> None:
    rad_toml = tmp_path / "rad.toml"
    rad_toml.write_text("[partition.gpu]\ncollocate = true\nshards_per_gpu = 8\n")
    said = rad_doctor(cluster, rad_toml, conf)
    assert "only SLURM_CONF of this shell names it" in said
    assert f'slurm_conf = "{conf}"' in said


def rad_doctor(cluster: Cluster, rad_toml: Path, conf: Path | None = None) -> str:
    """Return what doctor says, whatever it finds."""
    variable = ("-u", "SLURM_CONF") if conf is None else (f"SLURM_CONF={conf}",)
    command = f"{cluster.place.venv}/bin/rad doctor --config {rad_toml} || true"
    return cluster.slurm("env", *variable, "bash", "-c", command)
