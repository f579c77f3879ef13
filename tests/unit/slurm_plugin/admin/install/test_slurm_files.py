"""`rad install --edit-slurm` on sites of many kinds: the lines that sharing needs, nothing else, or nothing at all."""

from __future__ import annotations

import cProfile
import pstats
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_plugin.admin.install import backup, slurm_files
from slurm_plugin.admin.install import uninstall as uninstalling
from slurm_plugin.admin.install.backup import undo
from slurm_plugin.admin.install.slurm_files_text import as_text
from slurm_plugin.admin.install.transaction import change_together
from slurm_plugin.admin.own_files.templates import GUARD, lua_folder
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.slurm.files.conf_files import gres_of_nodes, settings_of
from slurm_plugin.slurm.files.conf_lines import read_conf

OLD, NEW = (22, 5, 8), (24, 11, 5)
HOOKS = {"prolog.sh": "prolog", "task_prolog.sh": "prolog.task_prolog", "epilog.sh": "epilog"}
SLURM_CONF = """\
# A site's slurm.conf.
ClusterName=lab
SlurmctldHost=ctl
GresTypes=gpu   # since 2021
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=4000
NodeName=gpu[1-4] CPUs=64 RealMemory=512000 Gres=gpu:a100:4 State=UNKNOWN
NodeName=cpu[1-9] CPUs=64 RealMemory=512000
PartitionName=gpu Nodes=gpu[1-4] Default=YES
PartitionName=cpu Nodes=cpu[1-9]
"""
GRES_CONF = "NodeName=gpu[1-4] Name=gpu Type=a100 File=/dev/nvidia[0-3]\n"
RAD_TOML = """\
mode = "enforce"
default_partition = "gpu"
[partition.gpu]
collocate = true
gpu_memory_mib = 40330
shards_per_gpu = 38
"""


class Site:
    """A site's files in a folder, and what `rad install` writes next to them."""

    def __init__(self, folder: Path) -> None:
        self.slurm, self.rad = folder / "slurm", folder / "rad"
        for each in (self.slurm, self.rad):
            each.mkdir(parents=True, exist_ok=True)
        self.write("slurm.conf", SLURM_CONF)
        self.write("gres.conf", GRES_CONF)
        self.written = {
            self.rad / name: f"#!/bin/sh\n: python -m {module}\n" for name, module in HOOKS.items()
        }
        self.written[self.rad / "rad.toml"] = RAD_TOML
        (self.slurm / "rad").mkdir(exist_ok=True)
        self.written |= {self.slurm / "rad" / name: GUARD.format(hook=self.rad / name) for name in HOOKS}

    def write(self, name: str, text: str) -> None:
        path = self.slurm / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def change(self, old: str, new: str, name: str = "slurm.conf") -> None:
        text = (self.slurm / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new))

    def plan(
        self, version: tuple[int, int, int] = NEW, gpus: slurm_files.NodeGpus | None = None
    ) -> slurm_files.SlurmFilesPlan:
        written = dict(self.written)
        for name in ("job_submit.lua", "cli_filter.lua"):
            if not (self.slurm / name).exists():
                written[self.slurm / name] = (lua_folder() / name).read_text()
        return slurm_files.plan(
            slurm_conf=self.slurm / "slurm.conf",
            config_path=self.rad / "rad.toml",
            written=written,
            version=version,
            plugins=frozenset({"job_submit_lua", "cli_filter_lua"}),
            gpus=gpus,
        )

    def install(self, version: tuple[int, int, int] = NEW) -> slurm_files.SlurmFilesPlan:
        plan = self.plan(version)
        assert not plan.refused, plan.left
        for path, text in self.written.items():
            path.write_text(text)
        self.written |= {path: text for path, text in plan.after.items() if path in self.written}
        change_together(backup.writes(self.rad, plan.before, plan.after, runs=plan.runs), self.rad)
        return plan

    def uninstall(self) -> None:
        for _ in range(2):  # PrologFlags go last
            removal = uninstalling.plan(root=Path("/"), etc=str(self.rad), slurm=str(self.slurm), running={})
            change_together(uninstalling.writes(removal, removal.edits), self.rad)
            uninstalling.tidy(removal)
            if not removal.edits:
                break

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.slurm)): path.read_bytes()
            for path in self.slurm.rglob("*")
            if path.is_file() and path.parent.name != "rad"
        }

    def settings(self) -> dict[str, str]:
        return settings_of(self.slurm / "slurm.conf")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize(
    ("standby", "gpus", "gres"),
    [
        ("SlurmctldHost=ctl2\n", "gpu:a100:4", "gpu:a100:4,shard:a100:152"),
        ("BackupController=ctl2\n", "gpu:a100:4", "gpu:a100:4,shard:a100:152"),
        ("", "gpu:a100:4", "gpu:a100:4,shard:152"),
        ("SlurmctldHost=ctl2\n", "gpu:4", "gpu:4,shard:152"),
        ("SlurmctldHost=ctl2\n", "gpu:a100:4,shard:152", "gpu:a100:4,shard:a100:152"),
    ],
    ids=["a standby", "as of old", "none", "GPUs of no type", "shards by hand before"],
)
def test_with_a_standby_shards_are_written_with_their_type(
    site: Site, version: tuple[int, int, int], standby: str, gpus: str, gres: str
) -> None:
    """Else a takeover costs 22.05 its shards and 24.11 its nodes, long after any job thinks of these lines."""
    if "Backup" in standby:
        standby = f"ControlMachine=ctl\n{standby}"
        site.change("SlurmctldHost=ctl\n", "")
    site.change("ClusterName=lab\n", f"ClusterName=lab\n{standby}")
    site.change("Gres=gpu:a100:4", f"Gres={gpus}")
    if "a100" not in gpus:
        site.change("Type=a100 ", "", "gres.conf")
    site.install(version)
    assert gres_of_nodes(site.slurm / "slurm.conf") == (gres,)
    again = site.plan(version)
    assert not again.after, "nothing is left to do"


def test_a_plain_site_gets_what_sharing_needs(site: Site) -> None:
    plan = site.install()
    before = {"clustername": "lab", "slurmctldhost": "ctl", "defmempercpu": "4000"}
    rads = {
        "grestypes": "gpu,shard",
        "selecttype": "select/cons_tres",
        "selecttypeparameters": "CR_Core_Memory,LL_SHARED_GRES",
        "jobsubmitplugins": "lua",
        "clifilterplugins": "lua",
        "prologflags": "Alloc,DeferBatch",
        "prolog": str(site.slurm / "rad/prolog.sh"),
        "taskprolog": str(site.slurm / "rad/task_prolog.sh"),
        "epilog": str(site.slurm / "rad/epilog.sh"),
    }
    found = site.settings()
    assert {name: found[name] for name in found if "name" not in name or name == "clustername"} == {
        **before,
        **rads,
    }
    assert gres_of_nodes(site.slurm / "slurm.conf") == ("gpu:a100:4,shard:152",)
    gres = read_conf(site.slurm / "gres.conf")
    assert gres is not None and [line.get("count") for line in gres.lines] == [None, *["38"] * 4]
    assert "GresTypes=gpu,shard   # since 2021\n" in (site.slurm / "slurm.conf").read_text()
    assert not plan.left


def test_again_changes_nothing(site: Site) -> None:
    site.install()
    assert not site.plan().after


LISTS = "JobSubmitPlugins=require_timelimit,all_partitions\nPrologFlags=NoHold,X11\nCliFilterPlugins=user_defaults\n"


def test_the_sites_own_lists_go_on(site: Site) -> None:
    site.write("slurm.conf", SLURM_CONF + LISTS)
    site.install()
    found = site.settings()
    assert found["jobsubmitplugins"] == "require_timelimit,all_partitions,lua"
    assert (found["clifilterplugins"], found["prologflags"]) == (
        "user_defaults,lua",
        "NoHold,X11,Alloc,DeferBatch",
    )


def an_include(site: Site) -> None:
    site.change("GresTypes=gpu   # since 2021\n", "Include types.conf\n")
    site.write("types.conf", "GresTypes=gpu # included\n")


def test_what_is_to_be_copied_has_every_changed_file_and_no_password(site: Site) -> None:
    an_include(site)
    site.write("slurmdbd.conf", "StoragePass=secret\n")
    said = as_text(site.plan(), {"etc": str(site.rad), "slurm": str(site.slurm)}, dry_run=False)
    (copy,) = [line for line in said.splitlines() if line.startswith("  copy ")]
    names = "{slurm.conf,gres.conf,types.conf,*.lua,rad}"
    assert copy.startswith(f"  copy {site.rad} {site.slurm}/{names} to the other machines (")


def broken_lines(site: Site) -> None:
    site.change(
        "CPUs=64 RealMemory=512000 Gres=gpu:a100:4 State", "CPUs=64 \\\n  Gres=gpu:a100:4 \\\n  State"
    )


def own_hooks(site: Site) -> None:
    hooks = "".join(f"{name}={site.slurm}/site.sh\n" for name in ("Prolog", "TaskProlog", "Epilog"))
    site.write("slurm.conf", SLURM_CONF + hooks)
    site.write("site.sh", "#!/bin/bash\nset -e\nexit 0\n")


def a_folder_of_hooks(site: Site) -> None:
    site.write("slurm.conf", SLURM_CONF + f"Prolog={site.slurm}/prolog.d/*\n")
    site.write("prolog.d/10-site", "#!/bin/sh\n")


def own_lua(site: Site) -> None:
    site.write("slurm.conf", SLURM_CONF + "JobSubmitPlugins=lua\n")
    site.write(
        "job_submit.lua",
        "function slurm_job_submit(j, p, u) return slurm.SUCCESS end\n"
        "function slurm_job_modify(j, r, p, u) return slurm.SUCCESS end\nreturn slurm.SUCCESS\n",
    )


def found_by_slurm(site: Site) -> None:
    site.write("gres.conf", "AutoDetect=nvml\n")


def line_by_line(site: Site) -> None:
    lines = "".join(f"NodeName=gpu{n} CPUs=64 RealMemory=512000 Gres=gpu:a100:4\n" for n in range(1, 5))
    site.change("NodeName=gpu[1-4] CPUs=64 RealMemory=512000 Gres=gpu:a100:4 State=UNKNOWN\n", lines)


SHAPES = (
    an_include,
    broken_lines,
    own_hooks,
    a_folder_of_hooks,
    own_lua,
    found_by_slurm,
    line_by_line,
)


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_sites_of_every_shape_share_and_come_back_byte_for_byte(site: Site, shape, version) -> None:
    shape(site)
    before = site.files()
    site.install(version)
    assert site.files() != before and not site.plan(version).after
    if shape is found_by_slurm:
        assert (site.slurm / "gres.conf").read_text() == (
            "AutoDetect=nvml\nNodeName=gpu[1-4] Name=shard Count=152\n"
        )
    if shape is a_folder_of_hooks:
        assert (site.slurm / "prolog.d/50-rad").stat().st_mode & 0o111
    site.uninstall()
    left = {name: text for name, text in site.files().items() if not name.endswith(uninstalling.SAVED)}
    assert left == before


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("SelectType=select/cons_tres", "SelectType=select/linear", "loses all jobs"),
        ("Default=YES", "OverSubscribe=EXCLUSIVE", "gives each job whole nodes"),
        ("PartitionName=gpu", "PartitionName=train", "Slurm has no partition gpu"),
        ("DefMemPerCPU=4000", "Prolog=/nowhere/site.sh", "cannot be read here"),
        ("Gres=gpu:a100:4", "", "no node with GPUs"),
        ("DefMemPerCPU=4000", "TaskProlog=site.py", "does not start"),
    ],
)
def test_what_is_the_sites_own_to_decide_stops_everything(site: Site, old: str, new: str, says: str) -> None:
    site.change(old, new)
    site.write("site.py", "#!/usr/bin/python3\nprint()\n")
    plan = site.plan()
    assert plan.refused
    assert any(says in finding.text for finding in plan.left), plan.left


def test_without_lines_of_gpus_in_gres_conf_nothing_is_guessed(site: Site) -> None:
    site.write("gres.conf", "# empty\n")
    assert site.plan().refused


def test_what_jobs_may_take_stays_the_sites(site: Site) -> None:
    site.change("CR_Core_Memory", "CR_Core")
    site.install()
    assert site.settings()["selecttypeparameters"] == "CR_Core"
    assert any("host memory is not counted" in each.text for each in site.plan().left)


def test_an_admins_rad_toml_is_never_changed(site: Site) -> None:
    (site.rad / "rad.toml").write_text(RAD_TOML.replace("= 38", "= 30"))
    del site.written[site.rad / "rad.toml"]
    site.change("Gres=gpu:a100:4", "Gres=gpu:a100:4,shard:152")
    site.change("\n", "\nNodeName=gpu[1-4] Name=shard Count=38 File=/dev/nvidia[0-3]\n", "gres.conf")
    plan = site.plan()
    assert plan.refused and site.rad / "rad.toml" not in plan.after


@pytest.mark.parametrize(
    ("text", "says"),
    [("mode = enforce\n", ":1: not TOML: "), ("\nmoed = 1\n", ":2: unknown key moed; did you mean")],
)
def test_a_broken_rad_toml_is_one_line(site: Site, text: str, says: str) -> None:
    path = site.rad / "rad.toml"
    path.write_text(text)
    del site.written[path]
    with pytest.raises(ConfigError, match=re.escape(f"{path}{says}")):
        site.plan()


def test_a_slurm_without_gpus_yet_gets_them(site: Site) -> None:
    site.change(" Gres=gpu:a100:4", "")
    site.change("GresTypes=gpu   # since 2021\n", "")
    (site.slurm / "gres.conf").unlink()
    lines = "".join(
        f"NodeName=gpu[1-4] Name=gpu Type=a100 File=/dev/nvidia{n}\n"
        f"NodeName=gpu[1-4] Name=shard Count=38 File=/dev/nvidia{n}\n"
        for n in range(4)
    )
    gpus = slurm_files.NodeGpus(nodes="gpu[1-4]", gres="gpu:a100:4,shard:152", lines=lines.rstrip())
    plan = site.plan(gpus=gpus)
    assert not plan.refused, plan.left
    assert plan.after[site.slurm / "gres.conf"] == lines
    assert "Gres=gpu:a100:4,shard:152" in plan.after[site.slurm / "slurm.conf"]
    assert "GresTypes=gpu,shard" in plan.after[site.slurm / "slurm.conf"]
    nobody = slurm_files.NodeGpus(nodes="other", gres="gpu:4,shard:152", lines=lines)
    assert site.plan(gpus=nobody).refused


def test_a_node_that_gres_conf_forgot_is_found(site: Site) -> None:
    site.install()
    site.change("gpu[1-4] Name=shard", "gpu[1-3] Name=shard", "gres.conf")
    plan = site.plan()
    assert not plan.refused
    added = plan.after[site.slurm / "gres.conf"].splitlines()[-4:]
    assert added == [f"NodeName=gpu4 Name=shard Count=38 File=/dev/nvidia{n}" for n in range(4)]


KINDS = {"a100": 8, "h100": 4, "h200": 8, "l40s": 2}


def test_many_nodes_of_four_kinds_take_few_steps(site: Site) -> None:
    """Counted in calls, not by the clock: with 300 nodes on a line each, each step went over all of them for each."""
    rows, devices, names = [], [], []
    for kind, gpus in KINDS.items():
        for number in range(10):
            names.append(f"{kind}n{number}")
            rows.append(f"NodeName={names[-1]} CPUs=64 Gres=gpu:{kind}:{gpus}\n")
            devices.append(f"NodeName={names[-1]} Name=gpu Type={kind} File=/dev/nvidia[0-{gpus - 1}]\n")
    site.change("NodeName=gpu[1-4] CPUs=64 RealMemory=512000 Gres=gpu:a100:4 State=UNKNOWN\n", "".join(rows))
    site.change("Nodes=gpu[1-4]", f"Nodes={','.join(names)}")
    site.write("gres.conf", "".join(devices))
    tables = "".join(
        f"[partition.gpu.gpus.{kind}]\ngpu_memory_mib = {10240 * gpus}\nshards_per_gpu = {10 * gpus - 1}\n"
        for kind, gpus in KINDS.items()
    )
    site.written[site.rad / "rad.toml"] = RAD_TOML.partition("gpu_memory_mib")[0] + tables
    profile = cProfile.Profile()
    plan = profile.runcall(site.plan)
    assert not plan.left
    gres = gres_of_nodes_in(plan.after[site.slurm / "slurm.conf"])
    assert gres == {f"gpu:{kind}:{n},shard:{kind}:{n * (10 * n - 1)}" for kind, n in KINDS.items()}
    assert plan.after[site.slurm / "gres.conf"].count("Name=shard") == 10 * sum(KINDS.values())
    calls = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    assert calls < 1_000_000, calls


def gres_of_nodes_in(text: str) -> set[str]:
    return set(re.findall(r"(?m)^NodeName=.*\bGres=(\S*gpu\S*)", text))


def test_a_file_that_changed_since_it_was_read_is_left_alone(site: Site) -> None:
    plan = site.plan()
    site.change("lab", "other")
    with pytest.raises(ConfigError, match="it was changed meanwhile"):
        change_together(backup.writes(site.rad, plan.before, plan.after, runs=plan.runs), site.rad)


def test_all_files_are_looked_at_before_the_first_is_changed(site: Site) -> None:
    plan = site.plan()
    assert len(plan.after) > 1
    last = list(plan.after)[-1]
    last.write_text((last.read_text() if last.exists() else "") + "# another program\n")
    before = site.files()
    with pytest.raises(ConfigError, match="it was changed meanwhile"):
        change_together(backup.writes(site.rad, plan.before, plan.after, runs=plan.runs), site.rad)
    assert site.files() == before  # gres.conf without its slurm.conf drains nodes


def test_a_link_to_a_shared_file_stays_one(site: Site) -> None:
    shared = site.slurm.parent / "shared.conf"
    (site.slurm / "slurm.conf").rename(shared)
    (site.slurm / "slurm.conf").symlink_to(shared)
    site.install()
    assert (site.slurm / "slurm.conf").is_symlink() and "shard" in shared.read_text()
    site.uninstall()
    assert (site.slurm / "slurm.conf").is_symlink() and shared.read_text() == SLURM_CONF


@pytest.mark.parametrize("sign", ["\v", "\f", "\r", "\x1c", "\x85", "\u2028"])
def test_a_line_ends_where_slurm_ends_it(site: Site, sign: str) -> None:
    """Python ends lines at these, too: the rest of a comment became a line, with which slurmctld does not start."""
    comment = f"# a comment,{sign}and more of it\n".encode()
    for name in ("slurm.conf", "gres.conf"):
        path = site.slurm / name
        path.write_bytes(comment + path.read_bytes())
    before = site.files()
    site.install()
    assert all(content.startswith(comment) for content in site.files().values() if b"a comment" in content)
    site.uninstall()
    assert {name: content for name, content in site.files().items() if name in before} == before


def test_what_the_site_changed_since_stays_when_rad_goes(site: Site) -> None:
    site.install()
    site.change("ClusterName=lab\n", "ClusterName=lab\nMailProg=/bin/true\n")
    site.install()
    site.uninstall()
    now = (site.slurm / "slurm.conf").read_text()
    assert now == SLURM_CONF.replace("ClusterName=lab\n", "ClusterName=lab\nMailProg=/bin/true\n")


def test_shards_that_a_site_had_before_us_stay(site: Site) -> None:
    site.change("GresTypes=gpu ", "GresTypes=gpu,shard ")
    site.change("Gres=gpu:a100:4", "Gres=gpu:a100:4,shard:152")
    site.write("gres.conf", GRES_CONF + "NodeName=gpu[1-4] Name=shard Count=152\n")
    before = site.files()
    site.install()
    site.uninstall()
    assert (site.slurm / "slurm.conf").read_bytes() == before["slurm.conf"]
    site.uninstall()
    left = {name: text for name, text in site.files().items() if not name.endswith(uninstalling.SAVED)}
    assert left == before


texts = st.lists(st.sampled_from("abcdefg"), max_size=8).map(lambda lines: "".join(f"{x}\n" for x in lines))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(before=texts, after=texts, tail=texts)
def test_undo_gives_back_what_was_there(before: str, after: str, tail: str) -> None:
    assert undo(before, after, after) == before
    without = undo(before, after, after + tail)
    assert without is None or sorted(without) == sorted(before + tail)


def test_gpus_without_a_type_are_informed_of_where_slurm_mixes_them_up(site: Site) -> None:
    """`rad doctor` warns of them right after; how a site names its GPUs is its own, and no reason to refuse."""
    assert not site.plan(OLD).warnings
    site.change("gpu:a100:4", "gpu:4")
    site.change(" Type=a100", "", "gres.conf")
    assert not site.plan(NEW).warnings
    plan = site.plan(OLD)
    (finding,) = plan.warnings
    assert "whole-GPU job" in finding.text and not plan.refused
    said = as_text(plan, {"etc": "/etc/rad", "slurm": "/etc/slurm"}, dry_run=False)
    assert "left to you: gres.conf: this Slurm gives" in said and "Type=" in said
    site.write("cgroup.conf", "ConstrainDevices=yes\n")
    site.write("slurm.conf", (site.slurm / "slurm.conf").read_text() + "TaskPlugin=task/cgroup\n")
    (finding,) = site.plan(OLD).warnings
    assert finding.subject == "cgroup.conf" and finding.level == "fail"
