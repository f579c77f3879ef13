"""`rad install --edit-slurm` where a site relies on Slurm's defaults, names nodes by sets, has GPUs of all kinds."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.admin.cli import main
from slurm_plugin.admin.doctor.checks.device_isolation import check_apart
from slurm_plugin.admin.doctor.checks.gpu_memory import check_gpu_memory
from slurm_plugin.admin.doctor.checks.gres_conf import fitting_mib, shards_per_gpu
from slurm_plugin.admin.doctor.checks.partitions import check_partitions
from slurm_plugin.admin.doctor.checks.slurm_conf import check_slurm_conf
from slurm_plugin.admin.doctor.slurm_state import cpus_of
from slurm_plugin.admin.install import slurm_files
from slurm_plugin.admin.install.defaults import found
from slurm_plugin.admin.install.slurm_files_text import as_text
from slurm_plugin.admin.own_files.manifest import NAME, digest, list_of
from slurm_plugin.core.config import toml
from slurm_plugin.core.config.load import PartitionConfig, parse_config
from slurm_plugin.slurm.files.conf_files import gres_of_nodes
from slurm_plugin.slurm.files.conf_lines import ConfFile, bytes_of, text_of
from slurm_plugin.slurm.files.installed import installed_version
from slurm_plugin.slurm.queries.live import Live
from tests.unit.slurm_plugin.admin.doctor.test_report import GOOD, SLURM
from tests.unit.slurm_plugin.admin.install.test_slurm_files import NEW, OLD, RAD_TOML, SLURM_CONF, Site

NODE_LINE = "NodeName=gpu[1-4] CPUs=64 RealMemory=512000 Gres=gpu:a100:4 State=UNKNOWN\n"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def partition_of(site: Site, plan: slurm_files.SlurmFilesPlan) -> PartitionConfig:
    text = plan.after.get(site.rad / "rad.toml", RAD_TOML)
    return parse_config(toml.loads(text), origin="here").partitions["gpu"]


# What a release takes where slurm.conf is silent


@pytest.mark.parametrize(
    ("version", "refused"),
    [((22, 5, 8), True), ((23, 2, 7), True), ((23, 11, 0), False), ((24, 11, 5), False), ((26, 5, 3), False)],
)
def test_without_select_type_its_default_of_the_release_counts(
    site: Site, version: tuple[int, int, int], refused: bool
) -> None:
    site.change("SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\n", "")
    plan = site.plan(version)
    assert plan.refused is refused
    found = [each for each in plan.left if "cons_tres" in each.text]
    assert bool(found) is refused
    assert not refused or ("select/linear" in found[0].text or "linear" in found[0].text)
    assert not any("host memory" in each.text for each in plan.left), "cons_tres counts it by default"


def test_a_running_slurmctld_is_queried_before_the_table() -> None:
    silent = {name: value for name, value in SLURM.items() if name != "selecttype"}
    facts = dataclasses.replace(GOOD, slurm=ConfFile(settings=silent), version=OLD)
    assert any(each.level == "fail" and "cons_tres" in each.text for each in check_slurm_conf(facts))
    live = Live(settings={**SLURM, "selecttype": "select/cons_tres"})
    queried = dataclasses.replace(facts, live=live)
    assert not any("shards need cons_tres" in each.text for each in check_slurm_conf(queried))


def test_parameters_of_cons_tres_are_not_the_fix_of_another_plugin(site: Site) -> None:
    site.change("SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\n", "")
    assert not any("SelectTypeParameters" in each.fix for each in site.plan(OLD).left)


# NodeSet


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize(
    ("lines", "nodes"),
    [
        ("NodeSet=big Feature=fast\n", "big"),
        ("NodeSet=big Nodes=gpu[1-4]\n", "big"),
        ("NodeSet=big Nodes=gpu[1-2]\n", "big,gpu[3-4]"),
        ("NodeSet=big Nodes=gpu1 Feature=fast\n", "big"),
        ("NodeSet=one Nodes=gpu[1-3]\nNodeSet=two Nodes=gpu4\n", "one,two"),
        ("NodeSet=all Nodes=ALL\n", "all"),
        ("", "ALL"),
    ],
)
def test_a_partition_of_node_sets_has_their_nodes(
    site: Site, version: tuple[int, int, int], lines: str, nodes: str
) -> None:
    site.change("Gres=gpu:a100:4 State", "Gres=gpu:a100:4 Feature=ib,fast State")
    site.change("PartitionName=gpu Nodes=gpu[1-4]", f"{lines}PartitionName=gpu Nodes={nodes}")
    plan = site.install(version)
    assert gres_of_nodes(site.slurm / "slurm.conf") == ("gpu:a100:4,shard:152",)
    assert len(re.findall("Name=shard", plan.after[site.slurm / "gres.conf"])) == 4
    assert not site.plan(version).after


# GPUs of all kinds


def test_the_type_of_all_gpus_is_filled_in(site: Site) -> None:
    assert partition_of(site, site.install()).gpu_type == "a100"


def test_a_type_that_a_site_left_out_is_no_failure(site: Site) -> None:
    """An upgrade goes on with the admin's rad.toml."""
    site.install()
    (site.rad / "rad.toml").write_text(RAD_TOML)
    del site.written[site.rad / "rad.toml"]
    plan = site.plan()
    assert not plan.refused and any("no gpu_type" in each.text for each in plan.left)


TWO = (
    "NodeName=gpu[1-2] CPUs=64 RealMemory=512000 Gres=gpu:a100:4\n"
    "NodeName=gpu[3-4] CPUs=64 RealMemory=512000 Gres=gpu:v100_16:4\n"
)
TWO_GRES = (
    "NodeName=gpu[1-2] Name=gpu Type=a100 File=/dev/nvidia[0-3]\n"
    "NodeName=gpu[3-4] Name=gpu Type=v100_16 File=/dev/nvidia[0-3]\n"
)
MIXED = "NodeName=gpu[1-4] CPUs=64 RealMemory=512000 Gres=gpu:a100:2,gpu:v100_16:2\n"
MIXED_GRES = (
    "NodeName=gpu[1-4] Name=gpu Type=a100 File=/dev/nvidia[0-1]\n"
    "NodeName=gpu[1-4] Name=gpu Type=v100_16 File=/dev/nvidia[2-3]\n"
)
TABLES = """\
[partition.gpu.gpus.a100]
shards_per_gpu = 38
[partition.gpu.gpus.v100_16]
shards_per_gpu = 14
"""


@pytest.mark.parametrize(("nodes", "gres"), [(TWO, TWO_GRES), (MIXED, MIXED_GRES)], ids=["nodes", "one node"])
def test_several_types_never_get_one_size_in_silence(site: Site, nodes: str, gres: str) -> None:
    site.change(NODE_LINE, nodes)
    site.write("gres.conf", gres)
    plan = site.plan()
    assert plan.refused
    (finding,) = [each for each in plan.left if "one size for all" in each.text]
    assert "a100, v100_16" in finding.text and "[partition.gpu.gpus.v100_16]" in finding.fix
    site.written[site.rad / "rad.toml"] = RAD_TOML + TABLES
    plan = site.install()
    assert not site.plan().after
    counts = re.findall(r"Name=shard Count=(\d+)", plan.after[site.slurm / "gres.conf"])
    assert sorted(set(counts)) == ["14", "38"]
    each = gres_of_nodes(site.slurm / "slurm.conf")
    if nodes is TWO:
        assert each == ("gpu:a100:4,shard:a100:152", "gpu:v100_16:4,shard:v100_16:56")
    else:
        assert each == ("gpu:a100:2,gpu:v100_16:2,shard:a100:76,shard:v100_16:28",)


MIG = (
    "NodeName=gpu[1-2] CPUs=64 RealMemory=512000 Gres=gpu:a100:2,gpu:1g.10gb:2\n"
    "NodeName=gpu[3-4] CPUs=64 RealMemory=512000 Gres=gpu:3g.20gb:2\n"
)
MIG_GRES = (
    "NodeName=gpu[1-2] Name=gpu Type=a100 File=/dev/nvidia[0-1]\n"
    "NodeName=gpu[1-2] Name=gpu Type=1g.10gb MultipleFiles=/dev/nvidia4,/dev/nvidia-caps/nvidia-cap606\n"
    "NodeName=gpu[1-2] Name=gpu Type=1g.10gb MultipleFiles=/dev/nvidia5,/dev/nvidia-caps/nvidia-cap607\n"
    "NodeName=gpu[3-4] Name=gpu Type=3g.20gb File=/dev/nvidia-mig-3g-[0-1]\n"
)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_mig_instances_get_no_shards(site: Site, version: tuple[int, int, int]) -> None:
    site.change(NODE_LINE, MIG)
    site.write("gres.conf", MIG_GRES)
    plan = site.install(version)
    assert gres_of_nodes(site.slurm / "slurm.conf") == ("gpu:a100:2,gpu:1g.10gb:2,shard:76", "gpu:3g.20gb:2")
    added = [line for line in plan.after[site.slurm / "gres.conf"].splitlines() if "shard" in line]
    assert [line.rpartition("File=")[2] for line in added] == ["/dev/nvidia0", "/dev/nvidia1"]
    assert partition_of(site, plan).gpu_type == "a100"
    assert not site.plan(version).after


def test_mig_instances_that_slurm_detects_stop_a_count_that_would_reach_them(site: Site) -> None:
    site.change(NODE_LINE, MIG)
    site.write("gres.conf", "AutoDetect=nvml\n")
    assert site.plan().refused


def test_only_whole_gpus_are_counted_and_sized() -> None:
    lines = (
        {"nodename": "n1", "gres": "gpu:a100:2,gpu:1g.10gb:2,shard:76"},
        {"nodename": "n2", "gres": "gpu:a100:2,shard:76"},
        {"partitionname": "gpu", "nodes": "n[1-2]"},
    )
    config = parse_config(toml.loads(RAD_TOML), origin="here")
    gres = ConfFile(
        lines=tuple({"nodename": f"n{n}", "name": "gpu", "file": "/dev/nvidia[0-1]"} for n in (1, 2))
    )
    facts = dataclasses.replace(
        GOOD, config=config, slurm=ConfFile(settings=SLURM, lines=lines), gres=gres, readings=None
    )
    assert not [each for each in check_gpu_memory(facts) if "different numbers" in each.text]


def test_shards_on_a_node_with_instances_are_those_of_its_gpus() -> None:
    lines = (
        {"nodename": "n1", "name": "gpu", "type": "a100", "file": "/dev/nvidia[0-1]"},
        {"nodename": "n1", "name": "gpu", "type": "1g.10gb", "file": "/dev/nvidia-caps/nvidia-cap[6-9]"},
        {"nodename": "n1", "name": "shard", "count": "76"},
    )
    facts = dataclasses.replace(GOOD, gres=ConfFile(lines=lines))
    assert shards_per_gpu(facts) == {("n1", ""): 38}


@pytest.mark.parametrize("key", ["cores", "cpus"])
def test_cpus_of_gres_conf_count_as_cores(key: str) -> None:
    lines = ({"name": "gpu", "file": "/dev/nvidia0", key: "0-3"},)
    facts = dataclasses.replace(GOOD, version=OLD, gres=ConfFile(lines=lines))
    assert not list(check_apart(facts))


# Shards that the site had


@pytest.mark.parametrize(
    ("count", "size_mib"), [(8, 5041), (12, 3360), (38, 1024), (36, 1024), (160, 252), (80, 504)]
)
def test_shards_of_the_sites_own_are_parts_of_its_gpus(site: Site, count: int, size_mib: int) -> None:
    site.change("GresTypes=gpu ", "GresTypes=gpu,shard ")
    site.change("gpu:a100:4", f"gpu:a100:4,shard:{4 * count}")
    lines = "".join(f"NodeName=gpu[1-4] Name=shard Count={count} File=/dev/nvidia{n}\n" for n in range(4))
    site.change("\n", f"\n{lines}", "gres.conf")
    found = partition_of(site, site.install())
    assert (found.shards, found.shard_mib) == (count, size_mib)
    assert found.shards * found.shard_mib <= 40330
    assert not site.plan().after


def test_a_size_that_was_taken_for_granted_is_found(site: Site) -> None:
    site.written[site.rad / "rad.toml"] = RAD_TOML.replace("= 38", "= 8")
    site.change("gpu:a100:4", "gpu:a100:4,shard:32")
    site.change("\n", "\nNodeName=gpu[1-4] Name=shard Count=32 File=/dev/nvidia[0-3]\n", "gres.conf")
    assert partition_of(site, site.plan()).shard_mib == 5041


@given(st.integers(1024, 200_000), st.integers(1, 400))
def test_shards_never_promise_more_than_a_gpu_has(memory_mib: int, count: int) -> None:
    size = fitting_mib(PartitionConfig(gpu_memory_mib=memory_mib, shards_per_gpu=count), count)
    assert count * size <= memory_mib and (not size or count * size > memory_mib / 2 or size == 1024)


def test_mps_next_to_shards_is_reported(site: Site) -> None:
    site.change("GresTypes=gpu ", "GresTypes=gpu,mps ")
    site.change("gpu:a100:4", "gpu:a100:4,mps:400")
    plan = site.install()
    assert any("mps and shards" in each.text for each in plan.left)


ACCOUNTS = "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageTRES=gres/gpu,gres/gpu:a100\n"


@pytest.mark.parametrize("accounts", [ACCOUNTS, ACCOUNTS.splitlines()[0] + "\n", ""])
def test_where_there_are_accounts_shards_are_counted(site: Site, accounts: str) -> None:
    site.change("GresTypes", f"{accounts}GresTypes")
    site.install()
    counted = site.settings().get("accountingstoragetres", "")
    assert ("gres/shard" in counted) is bool(accounts) and counted.endswith(
        "gpu,gres/shard" if accounts else ""
    )
    assert ("gres/gpu:a100" in counted) is (accounts == ACCOUNTS)
    site.uninstall()
    assert (site.slurm / "slurm.conf").read_text() == SLURM_CONF.replace("GresTypes", f"{accounts}GresTypes")


# Other things that files say


@pytest.mark.parametrize(
    ("row", "cpus"),
    [
        ({"cpus": "8", "sockets": "2"}, 8),
        ({"sockets": "2", "corespersocket": "16", "threadspercore": "2"}, 64),
        ({"boards": "2", "socketsperboard": "2", "corespersocket": "8"}, 32),
        ({"procs": "4"}, 4),
        ({"cputot": "96", "cpus": "1"}, 96),
        ({}, 0),
    ],
)
def test_cpus_of_a_node(row: dict[str, str], cpus: int) -> None:
    assert cpus_of(row) == cpus


def test_a_node_of_sockets_and_cores_has_a_default_memory(site: Site) -> None:
    lines = (
        {
            "nodename": "n1",
            "gres": "gpu:2,shard:276",
            "sockets": "2",
            "corespersocket": "16",
            "threadspercore": "2",
            "realmemory": "512000",
        },
        {"partitionname": "gpu", "nodes": "n1"},
    )
    settings = {name: value for name, value in SLURM.items() if name != "defmempercpu"}
    facts = dataclasses.replace(GOOD, slurm=ConfFile(settings=settings, lines=lines))
    (finding,) = [each for each in check_partitions(facts) if "DefMemPerCPU" in each.text]
    assert "DefMemPerCPU=8000" in finding.fix


def test_a_second_install_shares_the_same_partition(tmp_path: Path) -> None:
    text = RAD_TOML.replace('default_partition = "gpu"', 'default_partition = "cpu"')
    (tmp_path / "rad.toml").write_text(text)
    there = found(tmp_path / "rad.toml", tmp_path / "slurm.conf", None)
    assert (there.partition, there.gpu_memory_mib) == ("gpu", 40330)


@pytest.mark.parametrize(
    "comment",
    [
        "# Ansible managed",
        "# This file is generated by azslurm, do not edit",
        "#  DO NOT MODIFY. Changes will be overwritten.",
        "## auto-generated on 2026-01-02",
    ],
)
def test_a_file_that_a_program_writes_is_named(site: Site, comment: str) -> None:
    site.change("# A site's slurm.conf.", comment)
    plan = site.plan()
    assert plan.generated == (f"{site.slurm}/slurm.conf:1: {comment}",)
    assert comment in as_text(plan, {"etc": "/e", "slurm": "/s"}, dry_run=True)
    site.write("slurm.conf", SLURM_CONF)
    assert not site.plan().generated


@pytest.mark.parametrize("mixed", [False, True])
def test_line_ends_of_dos_stay(site: Site, mixed: bool) -> None:
    for name in ("slurm.conf", "gres.conf"):
        path = site.slurm / name
        lines = path.read_bytes().split(b"\n")
        path.write_bytes(b"\r\n".join(lines[:5] if mixed else lines) + b"\n".join([b"", *lines[5:]] * mixed))
    before = site.files()
    site.install()
    changed = (site.slurm / "slurm.conf").read_bytes()
    assert b"shard" in changed and (mixed or changed.count(b"\n") == changed.count(b"\r\n"))
    site.uninstall()
    after = site.files()
    assert {name: after[name] for name in before} == before


@given(st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.booleans()), max_size=8), st.booleans())
def test_bytes_come_back_from_text(lines: list[tuple[str, bool]], ended: bool) -> None:
    raw = b"".join(text.encode() + (b"\r\n" if dos else b"\n") for text, dos in lines) + (
        b"" if ended else b"x"
    )
    text = raw.decode().replace("\r\n", "\n")
    assert bytes_of(text, raw) == raw


# Uninstall


def test_shards_of_a_site_stay_where_slurm_starts_nothing_of_rads(site: Site) -> None:
    """RAD's own files were written, and Slurm's were refused or never changed."""
    site.change("GresTypes=gpu ", "GresTypes=gpu,shard ")
    site.change("gpu:a100:4", "gpu:a100:4,shard:152")
    site.change("\n", "\nNodeName=gpu[1-4] Name=shard Count=152 File=/dev/nvidia[0-3]\n", "gres.conf")
    for path, text in site.written.items():
        path.write_text(text)
    listed = {str(path): {digest(path.read_bytes())} for path in site.written}
    (site.rad / NAME).write_bytes(list_of(listed))
    before = site.files()
    site.uninstall()
    assert site.files() == before


def test_text_is_read_without_carriage_returns(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a=1\r\n")
    assert text_of(tmp_path / "f") == "a=1\n"


# What a plain `rad install` shows


def test_a_plain_install_shows_the_lines_of_this_site(site: Site) -> None:
    options = ["--etc", str(site.rad), "--slurm", str(site.slurm), "--gpu-memory-mib", "40330", "--dry-run"]
    before = site.files()
    shown = CliRunner().invoke(main, ["install", *options]).output
    assert "+NodeName=gpu[1-4] CPUs=64 RealMemory=512000 Gres=gpu:a100:4,shard:152" in shown
    assert "ConstrainDevices=no" not in shown and "unless it is there already" not in shown
    assert "or run this with --edit-slurm" in shown and site.files() == before
    site.install(installed_version() or OLD)
    assert "need no change" in CliRunner().invoke(main, ["install", *options]).output


def test_slurm_conf_is_where_its_variable_says(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(site.slurm / "slurm.conf"))
    options = ["--etc", str(site.rad), "--gpu-memory-mib", "40330", "--dry-run"]
    shown = CliRunner().invoke(main, ["install", *options]).output
    assert f"+++ {site.slurm}/slurm.conf" in shown
    site.install()
    gone = CliRunner().invoke(main, ["uninstall", "--etc", str(site.rad), "--dry-run"]).output
    assert f"{site.slurm}/slurm.conf" in gone


def test_without_slurm_conf_nothing_is_shown_as_if_it_would_be_done(tmp_path: Path) -> None:
    options = ["--etc", str(tmp_path), "--slurm", str(tmp_path), "--gpu-memory-mib", "40330", "--dry-run"]
    done = CliRunner().invoke(main, ["install", *options, "--edit-slurm"])
    assert done.exit_code == 2
    assert done.output.startswith(f"rad install: {tmp_path}/slurm.conf: cannot be read"), done.output
