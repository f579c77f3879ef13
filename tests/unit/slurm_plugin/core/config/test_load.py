from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.core.config.last_good import config_in_force
from slurm_plugin.core.config.load import Config, load_config, parse_config
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.units import GIB


def test_defaults_hold_without_a_line() -> None:
    assert parse_config({}, origin="rad.toml") == Config()


def test_a_partition_inherits_the_defaults_and_overrides_them() -> None:
    tree = {
        "partition_defaults": {"policy": "mug", "smact_max": 1},
        "partition": {"a": {"collocate": True, "shards_per_gpu": 80}, "b": {"policy": "lug"}},
    }
    config = parse_config(tree, origin="rad.toml")
    assert config.partitions["a"].policy == "mug"
    assert config.partitions["a"].smact_max == 1.0
    assert config.partitions["b"].policy == "lug"
    assert (config.partitions["a"].shards, config.partitions["a"].shard_bytes) == (80, GIB)


def test_without_mps_every_partition_shares_in_time_slices() -> None:
    tables = {"gpu": {"sharing": "mps"}, "calm": {}, "slow": {"sharing": "streams"}}
    shipped = parse_config({"partition": tables}, origin="rad.toml")
    off = parse_config({"partition": tables, "features": {"mps": False}}, origin="rad.toml")
    assert (shipped.sliced, off.sliced) == (("slow",), ("gpu", "calm", "slow"))
    assert [off.caps(name) for name in tables] == [False] * 3


def test_several_partitions_are_managed_only_if_all_are_alike() -> None:
    same = {"collocate": True, "gpu_memory_mib": 40000}
    config = parse_config({"partition": {"a": same, "b": same, "c": {}}}, origin="rad.toml")
    assert config.partition("a,b") == config.partitions["a"]
    assert config.partition("a,c") is None
    assert config.partition("a,unknown") is None
    assert config.partition(None) is None


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"mod": "observe"}, ["unknown key mod", "did you mean mode?"]),
        ({"partition": {"gpu": {"colocate": True}}}, ["partition.gpu.colocate", "partition.gpu.collocate"]),
        ({"paths": {"sock": "/x"}}, ["paths.sock", "paths.socket"]),
        ({"mode": "on"}, ["mode is 'on'", "enforce, observe, off"]),
        ({"partition_defaults": {"smact_max": "high"}}, ["smact_max", "must be a number"]),
        ({"partition_defaults": {"shard_mib": True}}, ["shard_mib", "whole number"]),
        ({"partition_defaults": {"margin_mib": -1}}, ["margin_mib", "must not be negative"]),
        ({"partition": {"gpu": {"confidence": 1.2}}}, ["partition.gpu.confidence is 1.2", "0.5 to 0.999"]),
        (
            {"partition": {"gpu": {"confidence": "auto"}}},
            ["partition.gpu.confidence is 'auto'", "must be a number or bound"],
        ),
        (
            {"partition": {"gpu": {"confidence": True}}},
            ["partition.gpu.confidence is True", "must be a number"],
        ),
        ({"features": True}, ["features must be a table"]),
        ({"partition": {"gpu": 3}}, ["partition must be tables"]),
        ({"partition": {"gpu": {"shard_mib": 0}}}, ["partition.gpu.shard_mib", "at least 1"]),
        ({"partition": {"gpu": {"collocate": True}}}, ["partition.gpu", "gpu_memory_mib"]),
    ],
)
def test_a_wrong_key_or_value_is_named_with_its_fix(tree: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        parse_config(tree, origin="/etc/rad/rad.toml")
    text = str(error.value)
    assert text.startswith("/etc/rad/rad.toml: ") and "\n" not in text
    assert all(word in text for word in words), text


def test_a_missing_or_broken_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rad install"):
        load_config(tmp_path / "rad.toml")
    (tmp_path / "rad.toml").write_text("mode = \n")
    with pytest.raises(
        ConfigError, match=r"rad\.toml:1: not TOML: Invalid value at column 8; correct the line"
    ):
        load_config(tmp_path / "rad.toml")
    (tmp_path / "rad.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"rad\.toml:1: not UTF-8; save the file as UTF-8 text"):
        load_config(tmp_path / "rad.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# RAD\nmod = 1\n", ":2: unknown key mod; did you mean mode?"),
        ('# mode = "on"\nmode = "on"\n', ":2: mode is 'on'; it must be one of enforce, observe, off"),
        (
            '[features]\n[telemetry]\n  "window_s" = "1"\n',
            ":3: telemetry.window_s is '1'; it must be a whole number",
        ),
        ('[partition.gpu]\n\n[partition . "big"]\npolcy = 1\n', ":4: unknown key partition.big.polcy; did"),
        ("[partition]\ngpu.confidence = 0.1\n", ":2: partition.gpu.confidence is 0.1; it must be from"),
        ("[partition]\ngpu = {confidence = 0.1}\n", ":2: partition.gpu.confidence is 0.1; it must be from"),
        ("[partition]\ngpu = 3\n", ":2: partition must be tables"),
        ("[[partition]]\n", ": partition must be tables"),
        (
            "[partition_defaults]\ntime_limit_factor = 0.5\n[partition.gpu]\npolicy = 'lug'\n",
            ":2: partition.gpu.time_limit_factor is 0.5; it must be 1",
        ),
        ("\n[partition.gpu]\ncollocate = true\n", ":3: partition.gpu collocates but has no GPU size; set"),
        ("[partition.gpu]\n[partition.gpu.gpus.a100]\n", ":2: partition.gpu.gpus.a100 has no size; set"),
        ("[partition.gpu]\nidle_after = '3'\n", ":2: partition.gpu.idle_after: '3' is no time span"),
        ("[partition.gpu]\n\nmig = 'map'\n", ':3: partition.gpu has mig = "map"; it needs mig_profiles'),
        ("[a\nb = 1\n", ":1: not TOML: "),
        ("mode = [\n\n", ":2: not TOML: "),
        ("a = " + "[" * 200_000, ": brackets are nested too deeply; remove them"),
    ],
)
def test_the_line_of_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "rad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_config(path)
    assert str(error.value).startswith(f"{path}{message}")
    with pytest.raises(ConfigError) as error:
        config_in_force(path)
    assert str(error.value).startswith(f"{path}{message}"), "daemons and hooks name it, too"


@pytest.mark.parametrize("what", ["fifo", "device", "folder", "link to a device"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, what: str) -> None:
    path = tmp_path / "rad.toml"
    makes: dict[str, Callable[[], object]] = {
        "fifo": lambda: os.mkfifo(path),
        "device": lambda: os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5)),
        "folder": path.mkdir,
        "link to a device": lambda: path.symlink_to("/dev/zero"),
    }
    if what == "device" and os.geteuid() != 0:
        pytest.skip("needs root")
    makes[what]()
    reason = "Is a directory" if what == "folder" else "not a regular file"
    for read in (load_config, config_in_force):
        with pytest.raises(ConfigError, match=f"rad.toml: {reason}; name a text file"):
            read(path)


@pytest.mark.parametrize(
    ("mode", "features", "does"),
    [
        ("enforce", {}, (True, True)),
        ("observe", {}, (False, False)),
        ("off", {}, (False, False)),
        ("enforce", {"placement": False}, (False, True)),
        ("enforce", {"guard": False}, (True, False)),
    ],
)
def test_what_is_switched_off_or_only_observed_is_not_done(
    mode: str, features: dict[str, bool], does: tuple[bool, bool]
) -> None:
    config = parse_config({"mode": mode, "features": features}, origin="rad.toml")
    assert (config.places, config.guards) == does
