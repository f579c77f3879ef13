"""The shipped configuration files are complete, valid and say what the code does."""

from __future__ import annotations

import dataclasses
import re

import pytest
from golden_texts import Golden

from slurm_plugin.admin.own_files.steps import FILES, FRAGMENTS
from slurm_plugin.admin.own_files.templates import render, templates_folder
from slurm_plugin.admin.own_files.values import shards_within
from slurm_plugin.core.config import toml
from slurm_plugin.core.config.load import (
    Config,
    Features,
    PartitionConfig,
    Paths,
    TelemetryConfig,
    parse_config,
)
from slurm_plugin.core.errors import ConfigError

VALUES = {
    "mode": "enforce",
    "partition": "gpu",
    "run": "/run/rad",
    "state": "/var/lib/rad",
    "key": "/etc/rad/key",
    "socket": "/run/rad/radd.sock",
    "log": "/var/log/rad",
    "slurm_conf": "",
    "telemetry": "auto",
    "simulated_folder": "",
    "shard_mib": "1024",
    "sharing": "mps",
    "mps_server": "user",
    "share_multi_gpu": "false",
    "gpu_memory_mib": "143156",
    "shards": "139",
}


SITE = {
    **VALUES,
    "share_multi_gpu": "true",
    "prefix": "/opt/rad/venv",
    "python": "/opt/rad/venv/bin/python",
    "templates": "/opt/rad/venv/lib/python3.11/site-packages/slurm_plugin/gres_conf",
    "etc": "/etc/rad",
    "config": "/etc/rad/rad.toml",
    "hooks": "/etc/slurm/rad",
    "slurm_user": "slurm",
    "slurm_uid": "64030",
    "select_parameters": "CR_Core_Memory,LL_SHARED_GRES,MULTIPLE_SHARING_GRES_PJ",
    "constrain_devices": "no",
    "node": "gpu[1-2]",
}
GPUS = [{"device": f"/dev/nvidia{index}", "shards": "139", "type": "nvidia_h200"} for index in range(2)]


@pytest.mark.parametrize("name", [*FILES, *FRAGMENTS])
def test_every_template_as_an_admin_finds_it(name: str, golden: Golden):
    text = (templates_folder() / name).read_text()
    golden(f"templates/{name}", render(text, SITE, gpus=GPUS))


def test_the_example_node_has_the_shards_that_rad_install_gives_it():
    text, memory_mib = (templates_folder() / "slurm.conf").read_text(), int(VALUES["gpu_memory_mib"])
    shards = shards_within(memory_mib, int(VALUES["shard_mib"]))
    assert {int(count) for count in re.findall(r"shard:(?:h200:)?(\d+)", text)} == {4 * shards}
    assert re.findall(r"GRES/gpu=(\d+)", text) == [str(shards)]


def rad_toml() -> str:
    return render((templates_folder() / "rad.toml").read_text(), VALUES)


def test_rad_toml_says_the_defaults_and_no_more():
    config = parse_config(toml.loads(rad_toml()), origin="rad.toml")
    partition = PartitionConfig(collocate=True, gpu_memory_mib=143156, shards_per_gpu=139)
    assert config == Config(default_partition="gpu", partitions={"gpu": partition})


def test_rad_toml_says_the_defaults_in_its_comments_too():
    text = re.sub(r"(?m)^#(\w+ = )", r"\1", rad_toml())
    config = parse_config(toml.loads(text), origin="rad.toml")
    partition = PartitionConfig(collocate=True, gpu_memory_mib=143156, shards_per_gpu=139)
    assert config == Config(default_partition="gpu", partitions={"gpu": partition})


@pytest.mark.parametrize("table", [Config, Paths, Features, TelemetryConfig, PartitionConfig])
def test_rad_toml_names_every_key(table: type):
    text = rad_toml()
    names = [f.name for f in dataclasses.fields(table) if f.default is not dataclasses.MISSING]
    assert [name for name in names if not re.search(rf"(?m)^#?{name} = ", text)] == []


def test_a_gpu_line_is_repeated_for_every_gpu():
    text = render(
        (templates_folder() / "gres.conf").read_text(),
        {"node": "n1"},
        gpus=[{"device": f"/dev/nvidia{n}", "shards": str(139 - n), "type": "h200"} for n in range(2)],
    )
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        "NodeName=n1 Name=gpu Type=h200 File=/dev/nvidia0",
        "NodeName=n1 Name=gpu Type=h200 File=/dev/nvidia1",
        "NodeName=n1 Name=shard Count=139 File=/dev/nvidia0",
        "NodeName=n1 Name=shard Count=138 File=/dev/nvidia1",
    ]


def test_a_name_without_a_value_is_refused():
    with pytest.raises(ConfigError, match=r"\{\{nothing\}\}"):
        render("x={{nothing}}\n", {})
