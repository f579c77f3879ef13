"""Check that `rad doctor` finds the one fault of each site, and that its fix, as printed, repairs the site.

    PYTHONPATH=. python bench/faults/doctor_faults.py [--out FILE] [--only NAME]

As root: each on a real Slurm, on which a job then shares a GPU.

tests/unit/slurm_plugin/admin/doctor/test_faults.py does the same without Slurm, in a folder.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.cluster import Cluster
from lab.fix import findings, fix
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place, home_of
from slurm_plugin.admin.own_files.templates import GUARD, STUBS
from slurm_plugin.core.errors import RadError
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.versions import traits, written

CHECKOUT = Path(__file__).resolve().parents[2]
NODE_SPEC = NodeSpec(name="n0")
Edit = Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    Attributes:
        name: What is wrong.
        says: What a finding's text holds then.
        files: File in the folder of slurm.conf -> how its text is changed.
        modes: File -> the mode that it gets.
        old: Whether it is one of Slurm before 23.11.5 alone.
        new: Whether it is one of Slurm from 23.11 on alone.
    """

    name: str
    says: str
    files: Mapping[str, Edit] = field(default_factory=dict)
    modes: Mapping[str, int] = field(default_factory=dict)
    old: bool = False
    new: bool = False


def put(pattern: str, text: str) -> Edit:
    """Return an edit that puts a text in the place of the only match of a pattern."""

    def edit(before: str) -> str:
        after, count = re.subn(pattern, text, before, count=1, flags=re.MULTILINE)
        assert count, f"{pattern} is not in {before}"
        return after

    return edit


def without(*patterns: str) -> Edit:
    """Return an edit that takes lines out."""

    def edit(before: str) -> str:
        for pattern in patterns:
            before, count = re.subn(rf"(?m)^{pattern}.*\n", "", before)
            assert count, pattern
        return before

    return edit


def more(text: str) -> Edit:
    """Return an edit that adds lines at the end."""
    return lambda before: f"{before.rstrip()}\n{text}\n"


def whole(text: str) -> Edit:
    """Return an edit that leaves nothing of what was there."""
    return lambda before: text


TOML = "rad.toml"
SITE_SUBMIT = """\
-- A site's own script.
function slurm_job_submit(job_desc, part_list, submit_uid) return slurm.SUCCESS end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""
SITE_FILTER = """\
-- A site's own script.
function slurm_cli_setup_defaults(options, early) return slurm.SUCCESS end
function slurm_cli_pre_submit(options, offset) return slurm.SUCCESS end
function slurm_cli_post_submit(offset, job, step) return slurm.SUCCESS end
return slurm.SUCCESS
"""
NODE = r"^(NodeName=n0 .*)"
TABLE = "[partition.gpu.gpus.simulated]\nshards_per_gpu = {}"


def toml(name: str, says: str, edit: Edit) -> Fault:
    """Return a fault of rad.toml."""
    return Fault(name=f"rad.toml: {name}", says=says, files={TOML: edit})


def conf(name: str, says: str, edit: Edit, *, old: bool = False, new: bool = False) -> Fault:
    """Return a fault of slurm.conf."""
    return Fault(name=f"slurm.conf: {name}", says=says, files={"slurm.conf": edit}, old=old, new=new)


def gres(name: str, says: str, edit: Edit) -> Fault:
    """Return a fault of gres.conf."""
    return Fault(name=f"gres.conf: {name}", says=says, files={"gres.conf": edit})


def own_hook(name: str, script: str, text: str, more: str = "") -> Fault:
    """Return a fault: slurm.conf names a hook of the site's own, which does not start RAD's."""
    edits = {
        "slurm.conf": put(rf"^{name}=(.*)/{script}", rf"{name}=\1/site_{script}"),
        f"site_{script}": whole(text),
    }
    return Fault(
        name=f"{name}: the site's own{more}",
        says="does not start",
        files=edits,
        modes={f"site_{script}": 0o755},
    )


FAULTS: tuple[Fault, ...] = (
    toml("a key misspelt", "unknown key modes", put(r"^mode =", "modes =")),
    toml(
        "a partition's key misspelt",
        "did you mean partition.gpu.collocate",
        put(r"^collocate =", "colocate ="),
    ),
    toml("a table's key misspelt", "did you mean features.guard", put(r"^#guard = true", "guad = true")),
    toml("a word that is none", "confidence is 'sure'", put(r"^#confidence = 0.95", 'confidence = "sure"')),
    toml("a number as text", "smact_max is 'high'", put(r"^#smact_max = 0.80", 'smact_max = "high"')),
    toml("a share of jobs above one", "confidence is 9", put(r"^#confidence = 0.95", "confidence = 9.0")),
    toml("observing", "mode is 'observe'", put(r'^mode = "enforce"', 'mode = "observe"')),
    toml("off", "mode is 'off'", put(r'^mode = "enforce"', 'mode = "off"')),
    toml("no partition shares", "no partition shares", put(r"^collocate = true", "collocate = false")),
    toml("no partition at all", "names no partition any more", put(r"(?s)^\[partition\.gpu\].*", "")),
    toml("a partition misspelt", "no partition gpus", put(r"^\[partition\.gpu\]", "[partition.gpus]")),
    toml(
        "another default partition",
        "go to gpu",
        put(r'^default_partition = "gpu"', 'default_partition = "plain"'),
    ),
    toml("no default partition", "go to gpu", put(r'^default_partition = "gpu"', 'default_partition = ""')),
    toml("MPS off", "switched off: mps", put(r"^#mps = true", "mps = false")),
    toml("recovery off", "switched off: recovery", put(r"^#recovery = true", "recovery = false")),
    toml("the guard off", "reported, not stopped", put(r"^#guard = true", "guard = false")),
    toml(
        "overruns only named",
        "reported, not stopped",
        put(r'^#on_overrun = "requeue"', 'on_overrun = "warn"'),
    ),
    toml("too few shards", "counts 30", put(r"^shards_per_gpu = 39", "shards_per_gpu = 30")),
    toml("too many shards", "counts 79", put(r"^shards_per_gpu = 39", "shards_per_gpu = 79")),
    toml(
        "the shards of a node for those of a GPU",
        "counts 156",
        put(r"^shards_per_gpu = 39", "shards_per_gpu = 156"),
    ),
    toml("a table for a type, shards without one", "shards without a type", more(TABLE.format(39))),
    Fault(
        name="rad.toml: a type's table with other shards",
        says="gpus.simulated in rad.toml counts 30",
        files={TOML: more(TABLE.format(30)), "slurm.conf": put(",shard:156", ",shard:simulated:156")},
    ),
    conf("GresTypes without shard", "GresTypes lacks shard", put("^GresTypes=.*", "GresTypes=gpu")),
    conf("no GresTypes", "GresTypes lacks gpu, shard", without("GresTypes=")),
    conf("GresTypes of the site", "GresTypes lacks shard", put("^GresTypes=.*", "GresTypes=gpu,nvme")),
    conf("nodes selected as a whole", "need cons_tres", put("^SelectType=.*", "SelectType=select/linear")),
    conf("memory not counted", "host memory is not counted", put("CR_Core_Memory", "CR_Core")),
    conf("shards not spread", "fills one GPU", put(",LL_SHARED_GRES", ""), new=True),
    conf(
        "a parameter of later versions",
        "does not know LL_SHARED_GRES",
        put("(?m)^SelectTypeParameters=.*", "SelectTypeParameters=CR_Core_Memory,LL_SHARED_GRES"),
        old=True,
    ),
    conf("no memory default", "no DefMemPerCPU", without("DefMemPerCPU=")),
    conf("no job_submit", "without JobSubmitPlugins=lua", without("JobSubmitPlugins=")),
    conf(
        "job_submit of the site",
        "without JobSubmitPlugins=lua",
        put("^JobSubmitPlugins=.*", "JobSubmitPlugins=require_timelimit"),
    ),
    conf("no cli_filter", "without CliFilterPlugins=lua", without("CliFilterPlugins=")),
    conf("jobs are not requeued", "JobRequeue=0", put("^JobRequeue=1", "JobRequeue=0")),
    conf("no PrologFlags", "before its Prolog", without("PrologFlags=")),
    conf(
        "PrologFlags of the site",
        "before its Prolog",
        put("^PrologFlags=.*", "PrologFlags=NoHold"),
    ),
    conf(
        "batch scripts sent before the Prolog",
        "counts some Prologs as failed",
        put("^PrologFlags=.*", "PrologFlags=Alloc"),
    ),
    conf("no Prolog", "names none", without("Prolog=")),
    conf("no TaskProlog", "names none", without("TaskProlog=")),
    conf("no Epilog", "names none", without("Epilog=")),
    conf("a node without shards", "no shared job can start", put(r"(?<=simulated:4),shard:156", "")),
    conf(
        "a node's line goes on on the next, without shards",
        "no shared job can start",
        put(r" Gres=gpu:simulated:4,shard:156", " \\\\\n  Gres=gpu:simulated:4"),
    ),
    conf(
        "whole nodes for each job",
        "gives each job whole nodes",
        put(r"^(PartitionName=gpu .*)", r"\1 OverSubscribe=EXCLUSIVE"),
    ),
    Fault(
        name="slurm.conf: the fault lies in an included file",
        says="GresTypes lacks shard",
        files={
            "slurm.conf": put("^GresTypes=.*", "Include types.conf"),
            "types.conf": whole("# RAD\nGresTypes=gpu\n"),
        },
    ),
    gres("no shards", "no shards", without("NodeName=n0 Name=shard")),
    gres("a GPU with fewer shards", "slurmctld drains it", put("Count=39", "Count=30")),
    gres("more shards than rad.toml", "have 40 shards", lambda text: text.replace("Count=39", "Count=40")),
    Fault(
        name="gres.conf: GPUs without a type",
        says="a GPU with shards in use",
        files={
            "gres.conf": lambda text: text.replace(" Type=simulated", ""),
            "slurm.conf": put("gpu:simulated:4", "gpu:4"),
        },
        old=True,
    ),
    Fault(
        name="cgroup.conf: confined without task/cgroup",
        says="does nothing without TaskPlugin",
        files={"cgroup.conf": more("ConstrainDevices=yes")},
    ),
    own_hook("Prolog", "prolog.sh", "#!/bin/sh\nexit 0\n"),
    own_hook("Prolog", "prolog.sh", "#!/bin/sh\n# rad: python -m prolog\nexit 0\n", ", RAD in a comment"),
    own_hook("TaskProlog", "task_prolog.sh", "#!/bin/sh\nexit 0\n"),
    own_hook("Epilog", "epilog.sh", "#!/bin/sh\nexit 0\n"),
    Fault(name="Prolog: not executable", says="is not executable", modes={"prolog.sh": 0o644}),
    Fault(name="Epilog: not executable", says="is not executable", modes={"epilog.sh": 0o644}),
    Fault(name="key: readable for all", says="can read the cluster key", modes={"key": 0o644}),
    Fault(
        name="job_submit.lua: the site's own",
        says="does not call RAD",
        files={"job_submit.lua": whole(SITE_SUBMIT)},
    ),
    Fault(
        name="job_submit.lua: RAD in a comment alone",
        says="does not call RAD",
        files={"job_submit.lua": whole(f'-- require("rad") later\n{SITE_SUBMIT}')},
    ),
    Fault(
        name="cli_filter.lua: the site's own",
        says="does not call RAD",
        files={"cli_filter.lua": whole(SITE_FILTER)},
    ),
)


def lay_guards(etc: Path) -> None:
    """Write the guards of the hooks next to slurm.conf, as `rad install` does."""
    for name in STUBS:
        guard = etc / "rad" / name
        guard.write_text(GUARD.format(hook=etc / name))
        guard.chmod(0o755)


def seed(fault: Fault, etc: Path) -> None:
    """Bring a fault into the folder of slurm.conf."""
    for name, edit in fault.files.items():
        path = etc / name
        path.write_text(edit(path.read_text() if path.exists() else ""))
    for name, mode in fault.modes.items():
        (etc / name).chmod(mode)


def main() -> int:
    """Try each fault on a private Slurm and write what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="JSON file for the results; what is in it already is kept")
    parser.add_argument("--only", default="", help="only faults whose name holds this")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    home, _ = home_of(CHECKOUT)
    cluster = Cluster(Place(root=home / "faults", venv=home / "venv"))
    try:
        cluster.up(ClusterSpec(nodes=(NODE_SPEC,)))
        lay_guards(cluster.place.etc)
        version = SlurmCommands(slurm_conf=str(cluster.place.slurm_conf), timeout_s=10).version()
        right = _said(cluster)
        for fault in [each for each in FAULTS if options.only in each.name]:
            recent = traits(version).keeps_gpu_and_shard_apart
            if (fault.old and recent) or (fault.new and not recent):
                continue
            row = {"slurm": written(version), "fault": fault.name, **_tried(cluster, fault, right)}
            rows.append(row)
            print(json.dumps(row), flush=True)
    finally:
        cluster.down()
        if options.out:
            before = json.loads(options.out.read_text()) if options.out.exists() else []
            options.out.write_text(json.dumps([*before, *rows], indent=1) + "\n")
    wrong = [row for row in rows if not (row["found"] and row["fixed"] and row["shares"])]
    print(f"{len(rows)} faults, {len(wrong)} not found, not fixed, or no job shared afterwards")
    return bool(wrong)


def _tried(cluster: Cluster, fault: Fault, right: set[tuple[str, str]]) -> dict[str, object]:
    """Return whether a fault was found, whether the fix left nothing to find, and whether a job then shared a GPU."""
    etc = cluster.place.etc
    backup = etc.with_name("etc.right")
    shutil.copytree(etc, backup, symlinks=True, copy_function=_copied)
    result: dict[str, object] = {"found": False, "fixed": False, "shares": False, "steps": 0}
    try:
        _stop(cluster)
        seed(fault, etc)
        wrong = _wrong(cluster, right)
        result["found"] = any(fault.says in each["text"] for each in wrong)
        for step in range(1, 6):
            if not wrong:
                break
            fix(cluster, wrong[0])
            result["steps"] = step
            wrong = _wrong(cluster, right)
        _start(cluster)
        result["fixed"] = not (_said(cluster) - right)
        result["shares"] = _shares(cluster)
    except RadError as exc:
        result["trouble"] = str(exc).splitlines()[0][:300]
    finally:
        _stop(cluster)
        shutil.rmtree(etc)
        shutil.copytree(backup, etc, copy_function=_copied)
        owner = backup.stat()
        os.chown(etc, owner.st_uid, owner.st_gid)
        shutil.rmtree(backup)
        _start(cluster)
    return result


def _said(cluster: Cluster) -> set[tuple[str, str]]:
    return {(each["subject"], each["text"]) for each in findings(cluster)}


def _wrong(cluster: Cluster, right: set[tuple[str, str]]) -> list[dict[str, Any]]:
    return [each for each in findings(cluster) if (each["subject"], each["text"]) not in right]


def _copied(source: str, target: str) -> str:
    shutil.copy2(source, target)
    before = os.stat(source)
    os.chown(target, before.st_uid, before.st_gid)
    return target


def _stop(cluster: Cluster) -> None:
    cluster.cancel_jobs()
    for name in (f"slurmd-{NODE_SPEC.name}", "slurmctld"):
        cluster.daemons.stop(name)


def _start(cluster: Cluster) -> None:
    """Start Slurm and radd with the files as they are, without memory of earlier jobs."""
    cluster.restart_radd()
    argv = ["slurmctld", "-D", "-c", "-f", str(cluster.place.slurm_conf)]
    cluster.daemons.start("slurmctld", argv, env=cluster.env())
    cluster.start_node(NODE_SPEC)

    def idle() -> bool:
        return (
            cluster.answers()
            and cluster.slurm("sinfo", "-h", "-N", "-p", "gpu", "-o", "%T").strip() == "idle"
        )

    cluster.wait("the node is idle", idle, 30)


def _shares(cluster: Cluster) -> bool:
    """Return whether a job that requests a GPU and says its memory runs on shards, to its end."""
    folder = cluster.place.root / "work"
    if not folder.exists():
        shutil.copytree(CHECKOUT / "examples", folder)
        folder.chmod(0o1777)
    jobs = Jobs(cluster, folder)
    job = jobs.submit(
        "--gpus=1",
        "--time=5",
        "--comment=rad:memory=4G",
        "--wrap",
        "python3 fake_train.py --memory 3G --seconds 0.2",
    )
    if job.job_id is None:
        return False
    done = jobs.wait(job.job_id, timeout_s=30)
    return done["JobState"] == "COMPLETED" and "shard:" in done["TresPerNode"]


if __name__ == "__main__":
    sys.exit(main())
