from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab import config
from lab.daemons import LabError
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.core.config import toml
from slurm_plugin.core.config.load import parse_config
from slurm_plugin.slurm.files.conf_files import devices_confined

PLACE = Place(root=Path("/srv/rad/.rad/lab"), venv=Path("/srv/rad/.rad/venv"))
SPEC = ClusterSpec(nodes=(NodeSpec(name="n0", gpu_mib=(40960, 40960)), NodeSpec(name="n1", gpu_mib=(81920,))))


def site(version: tuple[int, int]) -> config.Site:
    ports = {"slurmctld": 7001, "n0": 7002, "n1": 7003}
    return config.Site(host="here", slurm_user="slurm", slurm_version=version, ports=ports)


def test_nothing_of_a_slurm_that_is_already_there_is_used() -> None:
    text = config.slurm_conf(SPEC, PLACE, site((22, 5)))
    paths = [
        word
        for line in text.splitlines()
        if not line.startswith("#")
        for word in line.split("=")
        if "/" in word
    ]
    own = [path for path in paths if path.removeprefix("socket=").startswith(str(PLACE.root))]
    others = {path for path in paths if path not in own and not path.startswith(f"{PLACE.root}/")}
    assert own
    assert all(not path.startswith(("/etc", "/var", "/run")) for path in others), others


@pytest.mark.parametrize(
    ("version", "cgroup", "spreads", "expires"),
    [
        ((22, 5), "cgroup/v1", False, True),
        ((24, 11), "disabled", True, False),
        ((26, 5), "disabled", True, False),
    ],
)
def test_versions_differ_where_they_must(
    version: tuple[int, int], cgroup: str, spreads: bool, expires: bool
) -> None:
    text = config.slurm_conf(SPEC, PLACE, site(version))
    assert config.cgroup_conf(SPEC, site(version)) == f"CgroupPlugin={cgroup}\n"
    assert ("LL_SHARED_GRES" in text) == spreads
    assert ("cred_expire" in text) == expires


def test_a_slurm_that_cannot_spread_shards_is_reported_before_it_fails_to_start() -> None:
    spread = replace(SPEC, spread_shards=True)
    assert "MULTIPLE_SHARING_GRES_PJ" in config.slurm_conf(spread, PLACE, site((24, 11)))
    with pytest.raises(LabError, match=r"need Slurm 23\.11, this is 22\.05"):
        config.slurm_conf(spread, PLACE, site((22, 5)))


def test_each_gpu_has_shards_in_proportion_to_its_memory() -> None:
    lines = [line for line in config.gres_conf(SPEC, PLACE).splitlines() if not line.startswith("#")]
    assert [line.rpartition("Count=")[2].split()[0] for line in lines if "Name=shard" in line] == [
        "39",
        "39",
        "79",
    ]
    assert "Gres=gpu:simulated:2,shard:78" in config.slurm_conf(SPEC, PLACE, site((24, 11)))


def test_rad_toml_is_one_that_the_product_takes_and_each_node_has_its_own_folders() -> None:
    seen = set()
    for node in (None, *SPEC.nodes):
        tree = toml.loads(config.rad_toml(SPEC, PLACE, node=node))
        parsed = parse_config(tree, origin="rad.toml")
        assert parsed.partitions["gpu"].shards == 39
        seen.add(parsed.paths.run)
    assert len(seen) == 3


def test_hooks_run_isolated_in_the_environment_of_the_cluster() -> None:
    for name in ("prolog.sh", "task_prolog.sh", "epilog.sh"):
        text = config.hook(name, PLACE)
        assert f"{PLACE.venv}/bin/python -I -m " in text
        assert f"{PLACE.etc}/rad.$SLURMD_NODENAME.toml" in text


def test_gpus_of_all_nodes_have_uuids_of_their_own_that_stay() -> None:
    uuids = [physical_gpu.uuid for node in SPEC.nodes for physical_gpu in config.make_gpus(node)]
    assert len(set(uuids)) == 3
    assert uuids == [physical_gpu.uuid for node in SPEC.nodes for physical_gpu in config.make_gpus(node)]


@pytest.mark.parametrize("version", [(22, 5), (24, 11), (26, 5)])
def test_a_confined_cluster_has_what_makes_pin_auto_stay_on_slurms_gpu(
    tmp_path: Path, version: tuple[int, int]
) -> None:
    for confined in (False, True):
        spec = replace(SPEC, confined=confined)
        (tmp_path / "slurm.conf").write_text(config.slurm_conf(spec, PLACE, site(version)))
        (tmp_path / "cgroup.conf").write_text(config.cgroup_conf(spec, site(version)))
        assert devices_confined(tmp_path / "slurm.conf") == confined
