"""Each way in which a site can be wrong gives one finding with its fix; a right one gives none."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from golden_texts import Golden
from small_disks import fill, small_disk

from slurm_plugin.admin.cli import main
from slurm_plugin.admin.doctor.checks.run import check_controller, check_daemons, examine
from slurm_plugin.admin.doctor.collect import gather
from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.finding import Finding
from slurm_plugin.admin.doctor.report import as_json, as_text, failed
from slurm_plugin.admin.own_files.templates import lua_folder
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.comments.signed_comment import fingerprint
from slurm_plugin.core.config.in_use import in_use
from slurm_plugin.core.config.load import Config, Features, GpuType, PartitionConfig, load_config
from slurm_plugin.core.config.settings import Paths
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.units import GIB, MIB
from slurm_plugin.monitor.window import write_window
from slurm_plugin.mps.daemon import LONGEST_RUN_FOLDER
from slurm_plugin.slurm.files.conf_lines import ConfFile
from slurm_plugin.slurm.queries.live import Live

SLURM = {
    "grestypes": "gpu,shard",
    "selecttype": "select/cons_tres",
    "defmempercpu": "4000",
    "selecttypeparameters": "CR_Core_Memory,LL_SHARED_GRES",
    "jobsubmitplugins": "lua",
    "clifilterplugins": "lua",
    "prologflags": "Alloc,DeferBatch",
    "prolog": "/etc/rad/prolog.sh",
    "taskprolog": "/etc/rad/task_prolog.sh",
    "epilog": "/etc/rad/epilog.sh",
}
NODES = (
    {"nodename": "n1", "gres": "gpu:2,shard:276"},
    {"partitionname": "gpu", "nodes": "n[1-2]"},
)
GRES = (
    {"nodename": "n1", "name": "gpu", "file": "/dev/nvidia[0-1]"},
    {"nodename": "n1", "name": "shard", "count": "138", "file": "/dev/nvidia0"},
    {"nodename": "n1", "name": "shard", "count": "138", "file": "/dev/nvidia1"},
)


def reading(index: int, **changes: Any) -> GpuReading:
    made = GpuReading(
        uuid=f"GPU-{index}",
        index=index,
        name="NVIDIA H200",
        memory_total_bytes=140 * GIB,
        memory_reserved_bytes=615 * MIB,
        memory_used_bytes=0,
        time_s=0.0,
        smact=0.0,
        smact_source="nvml-gpm",
    )
    return dataclasses.replace(made, **changes)


def sharing(**settings: Any) -> Config:
    return Config(partitions={"gpu": PartitionConfig(collocate=True, shards_per_gpu=138, **settings)})


def typed(*, memory_mib: int = 0, **shards: int) -> Config:
    gpus = {kind: GpuType(shards_per_gpu=each, gpu_memory_mib=memory_mib) for kind, each in shards.items()}
    return Config(partitions={"gpu": PartitionConfig(collocate=True, gpus=gpus)})


OLD = {**SLURM, "selecttypeparameters": "CR_Core_Memory"}

GOOD = Facts(
    config_path=Path("/etc/rad/rad.toml"),
    config=Config(partitions={"gpu": PartitionConfig(collocate=True, shards_per_gpu=138)}),
    slurm_conf_path=Path("/etc/slurm/slurm.conf"),
    slurm=ConfFile(settings=SLURM, lines=NODES),
    gres=ConfFile(lines=GRES),
    cgroup=ConfFile(settings={"constraindevices": "no"}),
    version=(24, 11, 5),
    node="n1",
    hooks={"prolog": "python -I -m prolog", "taskprolog": "-m prolog.task_prolog", "epilog": "-m epilog"},
    lua={"job_submit": 'require("rad")', "cli_filter": 'require("rad_cli")'},
    lua_sockets=("5.1",),
    plugins=frozenset({"job_submit_lua", "cli_filter_lua"}),
    key_error="",
    radd="ok",
    radd_here=True,
    units={"radd": "active", "rad-monitor": "active"},
    gpu_node=True,
    readings=(reading(0), reading(1)),
    monitored=True,
    mps_control="/usr/bin/nvidia-cuda-mps-control",
)


def slurm(**changes: str) -> dict[str, Any]:
    return {"slurm": ConfFile(settings={**SLURM, **changes}, lines=NODES)}


def nodes(*lines: dict[str, str]) -> dict[str, Any]:
    return {"slurm": ConfFile(settings=SLURM, lines=(*lines, NODES[-1]))}


def gres(*lines: dict[str, str]) -> dict[str, Any]:
    return {"gres": ConfFile(lines=lines)}


def several_share() -> Config:
    return Config(
        partitions={"gpu": PartitionConfig(collocate=True, shards_per_gpu=138, share_multi_gpu=True)}
    )


def troubles(facts: Facts) -> list[Finding]:
    return [finding for finding in examine(facts) if finding.level != "ok"]


def test_a_right_site_has_no_findings():
    assert troubles(GOOD) == []


@pytest.mark.parametrize(
    "changes",
    [
        {
            **gres({**GRES[0], "type": "h200"}, *GRES[1:]),
            "slurm": ConfFile(settings=OLD, lines=({**NODES[0], "gres": "gpu:h200:2,shard:276"}, *NODES[1:])),
            "config": sharing(gpu_type="h200"),
        },
        {**gres({**GRES[0], "cores": "0-31"}, *GRES[1:]), "slurm": ConfFile(settings=OLD, lines=NODES)},
        {
            "gres": ConfFile(settings={"autodetect": "nvml"}, lines=GRES),
            "slurm": ConfFile(settings=OLD, lines=NODES),
        },
    ],
)
def test_a_gpu_with_a_type_or_cores_is_kept_apart_by_an_old_slurm_too(changes: dict[str, Any]):
    assert troubles(dataclasses.replace(GOOD, version=(22, 5, 8), **changes)) == []


def test_a_type_that_slurm_conf_does_not_name_is_dropped_by_slurmd():
    changes = gres({**GRES[0], "type": "h200"}, *GRES[1:])
    (found,) = troubles(
        dataclasses.replace(GOOD, version=(22, 5, 8), slurm=ConfFile(settings=OLD, lines=NODES), **changes)
    )
    assert "shards in use" in found.text


FOUR = ({"nodename": "n1", "gres": "gpu:4,shard:552"}, NODES[-1])


@pytest.mark.parametrize(
    "lines",
    [
        ({"autodetect": "nvml", "name": "gpu"}, {"name": "shard", "count": "552"}),
        (
            {"nodename": "n1", "autodetect": "nvml", "name": "gpu"},
            {"nodename": "n1", "name": "shard", "count": "552"},
        ),
        ({"name": "gpu", "file": "/dev/nvidia[0-3]"}, {"name": "shard", "count": "552"}),
        ({"name": "gpu", "file": "/dev/nvidia[0-3]"}, {"nodename": "n1", "name": "shard", "count": "552"}),
    ],
)
def test_shards_of_a_node_are_spread_over_the_gpus_that_slurm_found(lines: tuple[dict[str, str], ...]):
    """`Name=shard Count=552` on a node with four GPUs is 138 for each, whether gres.conf names them or NVML does."""
    changes = {"gres": ConfFile(lines=lines), "slurm": ConfFile(settings=SLURM, lines=FOUR)}
    assert troubles(dataclasses.replace(GOOD, **changes)) == []
    here = {
        **changes,
        "node": "n1",
        "readings": tuple(reading(n, memory_total_bytes=100 * GIB) for n in range(4)),
    }
    reported = troubles(dataclasses.replace(GOOD, **here))
    assert [each.level for each in reported] == ["fail"] * 4 and "98 shards for each GPU" in reported[0].fix
    few = tuple(line | ({"count": "400"} if "count" in line else {}) for line in lines)
    reported = troubles(dataclasses.replace(GOOD, **{**changes, "gres": ConfFile(lines=few)}))
    assert any(
        "GPUs have 100 shards" in each.text and "shards_per_gpu = 100" in each.fix for each in reported
    )


def test_slurmctlds_own_word_goes_before_the_files():
    """The node's Gres as slurmctld has it says how many GPUs share the shards; the file here may be another node's."""
    row = {"gres": "gpu:h200:4(S:0-1),shard:h200:552(S:0-1)", "state": "IDLE"}
    live = Live(
        settings={**SLURM, "selecttypeparameters": "CR_CORE_MEMORY,LL_SHARED_GRES"},
        partitions={"gpu": {"nodes": "n1", "defmempercpu": "4000"}},
        nodes={"n1": row},
    )
    shards = ConfFile(lines=({"name": "gpu", "autodetect": "nvml"}, {"name": "shard", "count": "552"}))
    facts = dataclasses.replace(GOOD, config=sharing(gpu_type="h200"), live=live, gres=shards)
    assert troubles(facts) == []
    drained = {**row, "state": "IDLE+DRAIN", "reason": "gres/shard"}
    reported = troubles(dataclasses.replace(facts, live=dataclasses.replace(live, nodes={"n1": drained})))
    assert [each.fix for each in reported] == ["run: scontrol update NodeName=n1 State=RESUME"]
    behind = dataclasses.replace(live, settings={**live.settings, "grestypes": "gpu"})
    reported = troubles(dataclasses.replace(facts, live=behind))
    assert [each.fix for each in reported] == ["run: systemctl restart slurmctld"]


def test_partitions_without_sharing_on_the_same_nodes_are_said():
    for nodes, said in (("n1", True), ("ALL", True), ("c1", False)):
        lines = (*NODES, {"nodename": "c1"}, {"partitionname": "all", "nodes": nodes})
        facts = dataclasses.replace(GOOD, slurm=ConfFile(settings=SLURM, lines=lines))
        found = [each for each in examine(facts) if each.subject == "partitions"]
        assert [each.level for each in found] == ["ok"] * said
        assert all(
            "gpu has nodes in common with all, where jobs share no GPU: on these nodes each job stays"
            in each.text
            for each in found
        )
        assert troubles(facts) == []


@pytest.mark.parametrize(
    "other", [{}, {"all": PartitionConfig(collocate=False)}], ids=["not named", "no sharing"]
)
def test_jobs_moved_among_gpus_of_another_partition_are_reported(other: dict[str, PartitionConfig]) -> None:
    """It said that each job stays on Slurm's GPU, which `pin = "bound"` is there to change."""
    config = sharing(pin="bound")
    config = dataclasses.replace(config, partitions={**config.partitions, **other})
    lines = (*NODES, {"partitionname": "all", "nodes": "n1"})
    facts = dataclasses.replace(GOOD, config=config, slurm=ConfFile(settings=SLURM, lines=lines))
    (found,) = troubles(facts)
    assert (found.level, found.subject) == ("warn", "rad.toml")
    assert 'common with all, where jobs share no GPU; pin = "bound" may move' in found.text
    assert 'pin = "auto"' in found.fix


def test_on_a_configless_node_a_fix_is_for_the_controllers_files():
    """Seen on 24.11.5: such a node gets slurm.conf, gres.conf, cgroup.conf and cli_filter.lua, and no folder."""
    lua = {"job_submit": None, "cli_filter": GOOD.lua["cli_filter"]}
    node = dataclasses.replace(
        GOOD,
        **slurm(grestypes="gpu"),
        slurm_conf_path=Path("/run/slurm/conf/slurm.conf"),
        lua=lua,
        lua_files={},
        radd_here=True,
    )
    reported = {each.subject: each for each in troubles(node)}
    assert (
        reported["slurm.conf"].fix.startswith("on the controller")
        and "GresTypes=gpu,shard" in reported["slurm.conf"].fix
    )
    assert not reported["slurm.conf"].actions
    assert "/etc/slurm/rad (slurmctld sends no folders) lacks rad_cli.lua" in reported["cli_filter.lua"].text
    assert reported["job_submit.lua"].level == "unseen"


LUA = {"rad_settings.lua": "", **{path.name: path.read_text() for path in lua_folder().glob("rad*.lua")}}
OLDER = {name: LUA[name] for name in ("rad_cli.lua", "rad_json.lua", "rad_settings.lua", "rad_step.lua")} | {
    "rad.lua": 'local json = require("rad_json")\nlocal ok, site = pcall(require, "rad_settings")\n'
}


def test_files_of_another_release_work_and_are_to_be_renewed():
    """After an upgrade, before `rad install`: rad.lua of before needs none of the files that the new one came with."""
    assert troubles(dataclasses.replace(GOOD, lua_files=LUA)) == []
    (reported,) = troubles(dataclasses.replace(GOOD, lua_files=OLDER))
    assert (reported.level, reported.subject, reported.fix) == ("warn", "job_submit.lua", "run: rad install")
    assert "work, but differ from this release: rad.lua, rad_fallback.lua, rad_job.lua" in reported.text
    newer = {**LUA, "rad.lua": LUA["rad.lua"] + "-- more\n", "rad_signed_booking.lua": None}
    (reported,) = troubles(dataclasses.replace(GOOD, lua_files=newer))
    assert reported.text.endswith("differ from this release: rad.lua"), "what cannot be read is not judged"
    without = {name: text for name, text in LUA.items() if name != "rad_settings.lua"}
    assert [each.level for each in troubles(dataclasses.replace(GOOD, lua_files=without))] == ["warn", "warn"]


@pytest.mark.parametrize(
    ("gone", "reported"),
    [
        ("rad_signed_booking.lua", {"job_submit.lua": "fail"}),
        ("rad_json.lua", {"job_submit.lua": "fail", "cli_filter.lua": "warn"}),
        ("rad_cli.lua", {"cli_filter.lua": "warn"}),
    ],
)
def test_what_lua_cannot_load_is_a_loss(gone: str, reported: dict[str, str]):
    files = {name: text for name, text in LUA.items() if name != gone}
    found = troubles(dataclasses.replace(GOOD, lua_files=files))
    assert {each.subject: each.level for each in found} == reported
    assert all(f"lacks {gone}: " in each.text for each in found)


@pytest.mark.parametrize(
    ("version", "gres", "levels"),
    [
        ((22, 5, 8), "gpu:4,shard:0", ["unseen", "warn"]),
        ((22, 5, 8), "gpu:4,shard:552", ["unseen"]),
        ((24, 11, 5), "gpu:4,shard:0", ["unseen"]),
    ],
)
def test_a_standby_needs_all_of_rads_and_one_without_shards_is_reported(
    version: tuple[int, int, int], gres: str, levels: list[str]
):
    live = Live(settings=SLURM, partitions={}, nodes={"n1": {"gres": gres}})
    pair = dataclasses.replace(GOOD, controllers=("a", "b"), live=live, version=version)
    reported = [each for each in examine(pair) if each.subject == "standby"]
    assert [each.level for each in reported] == levels
    assert reported[0].text.startswith("b: radd, the key and the Lua files belong there as on a")
    assert all("start slurmctld on a again" in each.fix for each in reported[1:])
    assert not [each for each in examine(GOOD) if each.subject == "standby"]


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_slurmctld_that_does_not_answer_is_reported(name: str):
    live = Live(settings=SLURM, silent=(name,))
    findings = examine(dataclasses.replace(GOOD, controllers=("a", "b"), live=live))
    reported = [each for each in findings if (each.subject, each.level) == ("standby", "warn")]
    assert [each.text.partition(":")[0] for each in reported] == [f"slurmctld on {name} does not answer"]


@pytest.mark.parametrize(
    ("gres", "fix"),
    [
        ("gpu:h200:4,shard:552", "Gres=gpu:h200:4,shard:h200:552"),
        ("shard:552,gpu:h200:4", "Gres=shard:h200:552,gpu:h200:4"),
        ("gpu:h200:4,shard:h200:552", None),
        ("gpu:4,shard:552", None),
        ("gpu:h200:4", None),
        ("gpu:a100:2,gpu:h200:2,shard:352", None),
    ],
)
def test_with_a_standby_shards_have_their_type_in_slurm_conf(gres: str, fix: str | None):
    """Without it a takeover cost 22.05 its shards and 24.11 its nodes."""
    row = {"nodename": "n[1-2]", "cpus": "8", "gres": gres}
    reported = [
        each
        for each in examine(dataclasses.replace(GOOD, controllers=("a", "b"), **nodes(row)))
        if (each.subject, each.level) == ("standby", "fail")
    ]
    assert bool(reported) == (fix is not None)
    if fix is not None:
        assert fix in reported[0].fix and "n[1-2]" in reported[0].text
    alone = examine(dataclasses.replace(GOOD, controllers=("a",), **nodes(row)))
    assert not [each for each in alone if each.subject == "standby"]


@pytest.mark.parametrize("word", ["lua", "all_partitions, job_submit/lua"])
def test_plugins_may_be_named_in_either_way(word: str):
    assert troubles(dataclasses.replace(GOOD, **slurm(jobsubmitplugins=word))) == []


@pytest.mark.parametrize(
    ("changes", "level", "says", "fix"),
    [
        (
            {"config": None, "config_error": "rad.toml: unknown key modus"},
            "fail",
            "modus",
            "correct what is named",
        ),
        ({"config": Config()}, "warn", "no partition shares", "collocate = true"),
        ({"config": dataclasses.replace(GOOD.config, mode="observe")}, "warn", "observe", "enforce"),
        (
            {"config": dataclasses.replace(GOOD.config, features=Features(mps=False))},
            "warn",
            "mps",
            "mps = true",
        ),
        ({"config_readable": False}, "warn", "users cannot read it", "run: chmod 644 "),
        ({"version": (20, 11, 4)}, "fail", "older than 22.05", "upgrade"),
        ({"version": (27, 5, 0)}, "warn", "newer than 26.05", "treated"),
        (slurm(grestypes="gpu"), "fail", "lacks shard", "GresTypes=gpu,shard"),
        (slurm(selecttype="select/cons_res"), "fail", "cons_tres", "SelectType="),
        (slurm(selecttypeparameters="CR_Core,LL_SHARED_GRES"), "warn", "host memory", "CR_Core_Memory"),
        (slurm(selecttypeparameters="CR_Core_Memory"), "warn", "fills one GPU", "LL_SHARED_GRES"),
        (
            {"config": several_share()},
            "warn",
            "jobs with several GPUs do not share them (share_multi_gpu)",
            "SelectTypeParameters=CR_Core_Memory,LL_SHARED_GRES,MULTIPLE_SHARING_GRES_PJ",
        ),
        (
            {"version": (22, 5, 8)},
            "fail",
            "does not know LL_SHARED_GRES",
            "SelectTypeParameters=CR_Core_Memory",
        ),
        (slurm(jobsubmitplugins=""), "fail", "JobSubmitPlugins", "JobSubmitPlugins=lua"),
        (slurm(clifilterplugins=""), "warn", "CliFilterPlugins", "CliFilterPlugins=lua"),
        (
            {"plugins": frozenset({"cli_filter_lua"})},
            "fail",
            "no job_submit_lua.so",
            "slurm-wlm-basic-plugins",
        ),
        (slurm(jobrequeue="0"), "warn", "JobRequeue=0", "JobRequeue=1"),
        (slurm(prologflags=""), "warn", "before its Prolog", "PrologFlags=Alloc,DeferBatch"),
        (slurm(prologflags="alloc,X11"), "warn", "drains the node", "PrologFlags=alloc,X11,DeferBatch"),
        (slurm(prolog=""), "fail", "names none", "Prolog=/etc/slurm/rad/prolog.sh"),
        (slurm(taskprolog=""), "fail", "names none", "TaskProlog=/etc/slurm/rad/task_prolog.sh"),
        (nodes({"nodename": "n1", "gres": "gpu:2"}), "fail", "n1 of partition gpu", "Gres=gpu:2,shard:276"),
        (
            nodes(NODES[0], {"nodename": "n2", "gres": "gpu:a100:4"}),
            "warn",
            "n2 of partition gpu has Gres=gpu:a100:4",
            "Gres=gpu:a100:4,shard:552",
        ),
        (
            {"hooks": {**GOOD.hooks, "epilog": "exit 0"}},
            "fail",
            "does not start",
            "/etc/rad/epilog.sh must say",
        ),
        ({"hooks": {**GOOD.hooks, "prolog": None}}, "unseen", "cannot be read here", ""),
        (
            {"lua": {**GOOD.lua, "job_submit": "-- gradual limits\nreturn slurm.SUCCESS"}},
            "fail",
            "does not call RAD",
            "rad.submit",
        ),
        ({"lua": {**GOOD.lua, "job_submit": None}}, "fail", "is missing", "rad install"),
        ({"lua": {**GOOD.lua, "cli_filter": None}}, "unseen", "login nodes", ""),
        ({"lua_sockets": ()}, "warn", "submits every job unchanged", "lua-posix"),
        ({"key_error": "other users can read the cluster key"}, "fail", "can read", "0600"),
        ({"key_error": None}, "unseen", "only root", ""),
        ({"radd": "no answer: timed out"}, "fail", "timed out", "systemctl restart radd"),
        ({"radd_here": False, "units": {}}, "unseen", "controller", ""),
        (
            {"units": {"radd": "active", "rad-monitor": "failed"}},
            "warn",
            "failed",
            "enable --now rad-monitor",
        ),
        ({"gres": None}, "fail", "not in the folder of slurm.conf", "Name=shard Count=138 File=/dev/nvidia1"),
        (gres(GRES[0]), "fail", "no shards", "Name=shard"),
        (
            gres(GRES[0], {"nodename": "n1", "name": "shard", "count": "160"}),
            "fail",
            "have 80 shards",
            "shards_per_gpu",
        ),
        (
            gres(GRES[0], GRES[1], {**GRES[2], "count": "140"}),
            "fail",
            "GPU 1: 140 shards of 1024 MiB",
            "count=138",
        ),
        (
            {"cgroup": ConfFile(settings={"constraindevices": "yes"})},
            "warn",
            "does nothing",
            "ConstrainDevices=no",
        ),
        (
            {
                **slurm(taskplugin="task/cgroup", selecttypeparameters="CR_Core_Memory"),
                "cgroup": ConfFile(settings={"constraindevices": "yes"}),
                "version": (23, 11, 4),
            },
            "fail",
            "cgroups pin both",
            "ConstrainDevices=no",
        ),
        (
            {
                **slurm(taskplugin="task/cgroup"),
                "cgroup": ConfFile(settings={"constraindevices": "yes"}),
                "config": sharing(pin="bound"),
            },
            "fail",
            "may choose a GPU that cgroups keep from the job",
            'pin = "auto"',
        ),
        (
            {**slurm(selecttypeparameters="CR_Core_Memory"), "version": (22, 5, 8)},
            "warn",
            "a GPU with shards in use",
            "Type=gpu",
        ),
        (
            {"config": sharing(gpu_memory_mib=150_000)},
            "fail",
            "counts 146.5 GiB for a GPU, and one here has 139.4 GiB",
            "gpu_memory_mib = 142745",
        ),
        (
            {"config": sharing(gpu_type="h200"), **nodes({"nodename": "n1", "gres": "gpu:h100:2,shard:276"})},
            "fail",
            "gpu_type of partition gpu is 'h200', and Slurm's is h100",
            'gpu_type = "h100"',
        ),
        (
            {
                "config": sharing(gpu_type="h200"),
                **nodes(
                    {"nodename": "n1", "gres": "gpu:h200:2,shard:276"},
                    {"nodename": "n2", "gres": "gpu:h100:2,shard:276"},
                ),
            },
            "fail",
            "has GPUs of type h100 too",
            'gpu_type = ""',
        ),
        (
            {
                "version": (22, 5, 8),
                "slurm": ConfFile(
                    settings=OLD,
                    lines=(
                        {"nodename": "n1", "gres": "gpu:x:2,shard:276"},
                        {"nodename": "n2", "gres": "gpu:x:2,shard:156"},
                        NODES[-1],
                    ),
                ),
                **gres(*({**line, "type": "x"} for line in GRES)),
            },
            "warn",
            "different numbers of shards (n1 138, n2 78)",
            "a partition for each size",
        ),
        (
            {
                "config": sharing(gpu_memory_mib=141_312),
                **nodes(
                    {"nodename": "n1", "gres": "gpu:2,shard:276"},
                    {"nodename": "n2", "gres": "gpu:2,shard:300"},
                ),
            },
            "warn",
            "a job that needs more than 138 is refused",
            "shards_per_gpu = 150",
        ),
        (
            {"config": typed(h200=138), **nodes({"nodename": "n1", "gres": "gpu:h200:2,shard:276"})},
            "fail",
            "n1 has shards without a type on GPUs of type h200",
            "Gres=gpu:h200:2,shard:h200:276",
        ),
        (
            {
                "config": typed(h200=138, a100=79),
                **nodes({"nodename": "n1", "gres": "gpu:h200:2,shard:h200:276"}),
            },
            "fail",
            "has a table for GPUs of type a100, and Slurm's are: h200",
            "as scontrol show node prints it",
        ),
        (
            {
                "config": typed(h200=138),
                **nodes(
                    {"nodename": "n1", "gres": "gpu:h200:2,shard:h200:276"},
                    {"nodename": "n2", "gres": "gpu:a100:4,shard:a100:156"},
                ),
            },
            "warn",
            "has GPUs of type a100 (n2) without a table",
            "[partition.gpu.gpus.a100]\nshards_per_gpu = 39",
        ),
        (
            {"config": typed(h200=139), **nodes({"nodename": "n1", "gres": "gpu:h200:2,shard:h200:276"})},
            "fail",
            "GPUs of n1 have 138 shards, and partition.gpu.gpus.h200 in rad.toml counts 139",
            "shards_per_gpu = 138",
        ),
        (
            {
                "config": typed(h200=138, memory_mib=150_000),
                "node": "n1",
                **nodes({"nodename": "n1", "gres": "gpu:h200:2,shard:h200:276"}),
            },
            "fail",
            "partition gpu.gpus.h200 counts 146.5 GiB for a GPU, and one here has 139.4 GiB",
            "gpu_memory_mib = 142745",
        ),
        (
            {"config": typed(h200=138), **nodes({"nodename": "n1", "gres": "gpu:h200:2"})},
            "fail",
            "no shared job can start there",
            "Gres=gpu:h200:2,shard:h200:276",
        ),
        ({"readings": None, "readings_error": "no driver"}, "fail", "no driver", "nvidia-smi"),
        ({"readings": (reading(0, healthy=False),)}, "fail", "needs a reset", "nvidia-smi -q"),
        ({"readings": (reading(0, smact_source="nvml-utilisation"),)}, "warn", "only utilisation", "DCGM"),
        ({"gpu_node": False, "readings": None}, "unseen", "GPU node", ""),
        ({"monitored": False}, "warn", "the guard does not act", "rad-monitor"),
        ({"mps_control": None}, "warn", "time slicing", "streams"),
        ({"acls": False}, "fail", "access control lists", "/run/rad"),
        (
            {
                "config": dataclasses.replace(
                    sharing(), paths=Paths(run=f"/scratch/{'r' * LONGEST_RUN_FOLDER}")
                )
            },
            "fail",
            "too long for the sockets of MPS",
            "/run/rad",
        ),
        (
            {"config": sharing(mps_server="account")},
            "warn",
            'mps_server = "account" in partition gpu is as "user"',
            "AccountingStorageEnforce",
        ),
        (
            {"config": sharing(on_overrun="warn")},
            "warn",
            "reported, not stopped",
            "on_overrun",
        ),
        (
            {"config": sharing(sharing="streams"), "compute_modes": {0: "Exclusive_Process", 1: "Default"}},
            "fail",
            "GPU 0 accepts one process at a time, and jobs of partition gpu share by time slicing",
            "nvidia-smi -i 0 -c DEFAULT",
        ),
        (
            {"compute_modes": {0: "Exclusive_Process", 1: "Exclusive_Process"}},
            "fail",
            "GPU 0, 1 accepts one process at a time, so one user's MPS server",
            "one_user_per_gpu = true",
        ),
        (
            {"compute_modes": {0: "Default", 1: "Prohibited"}},
            "fail",
            "GPU 1 accepts no process",
            "nvidia-smi -i 1 -c DEFAULT",
        ),
        (
            {"slurm": ConfFile(settings={**SLURM, "proctracktype": "proctrack/linuxproc"}, lines=NODES)},
            "warn",
            "leaves its job's process tree",
            "proctrack/cgroup",
        ),
        ({"slurm": None, "slurm_conf_path": None}, "unseen", "not found here", ""),
    ],
)
def test_one_fault_one_finding(changes: dict[str, Any], level: str, says: str, fix: str):
    findings = troubles(dataclasses.replace(GOOD, **changes))
    found = [f for f in findings if f.level == level and says in f.text]
    assert len(found) == 1, as_text(findings)
    assert fix.lower() in found[0].fix.lower()
    assert failed(findings) == (level == "fail"), as_text(findings)


def test_a_gpu_of_one_process_is_fine_where_one_user_at_a_time_has_it():
    one_user = dataclasses.replace(GOOD, config=sharing(one_user_per_gpu=True))
    assert troubles(dataclasses.replace(one_user, compute_modes={0: "Exclusive_Process"})) == troubles(
        one_user
    )


def test_the_text_counts_and_puts_each_fix_below():
    text = as_text(troubles(dataclasses.replace(GOOD, mps_control=None, key_error="bad key")))
    assert re.search(r"(?m)^FAIL  key  bad key\n +fix: ", text)
    assert text.endswith("1 to fix, 1 to improve, 0 fine, 0 not visible from this machine")


def test_the_pages(golden: Golden):
    """A right site, and one where nearly everything is wrong."""
    golden("doctor/right_site.txt", as_text(examine(GOOD)))
    golden("doctor/right_site.json", as_json(examine(GOOD)))
    wrong = dataclasses.replace(
        GOOD,
        **slurm(
            grestypes="gpu", jobsubmitplugins="", prolog="", prologflags="", selecttypeparameters="CR_Core"
        ),
        config=dataclasses.replace(GOOD.config, mode="observe", features=Features(mps=False)),
        gres=ConfFile(lines=(GRES[0], GRES[1], {**GRES[2], "count": "140"})),
        hooks={**GOOD.hooks, "epilog": "exit 0"},
        lua={"job_submit": None, "cli_filter": "return slurm.SUCCESS"},
        lua_sockets=(),
        key_error="/etc/rad/key: other users can read the cluster key; run: chmod 600 /etc/rad/key",
        radd="no answer: timed out",
        units={"radd": "active", "rad-monitor": "failed"},
        readings=(reading(0, smact_source="nvml-utilisation"), reading(1, healthy=False)),
        monitored=False,
        mps_control=None,
    )
    golden("doctor/wrong_site.txt", as_text(examine(wrong)))
    login = dataclasses.replace(
        GOOD,
        key_error=None,
        radd_here=False,
        radd=None,
        units={},
        gpu_node=False,
        readings=None,
        mps_control=None,
    )
    golden("doctor/login_node.txt", as_text(examine(login)))


def test_radd_that_refuses_a_user_is_not_reported_as_broken() -> None:
    found = examine(dataclasses.replace(GOOD, key_error=None, radd="no answer: Permission denied"))
    assert [each.level for each in found if each.subject == "radd"] == ["unseen"]
    dead = examine(dataclasses.replace(GOOD, key_error=None, radd="no answer: Connection refused"))
    assert [each.level for each in dead if each.subject == "radd"] == ["fail"]


class TestGather:
    """From a machine as it is."""

    def files(self, folder: Path) -> Path:
        (folder / "slurm.conf").write_text(f"GresTypes=gpu,shard\nProlog={folder}/prolog.sh\n")
        (folder / "gres.conf").write_text(
            "Name=gpu File=/dev/nvidia0\nName=shard Count=10 File=/dev/nvidia0\n"
        )
        (folder / "prolog.sh").write_text("python -m prolog\n")
        (folder / "key").write_bytes(bytes(32))
        (folder / "key").chmod(0o600)
        config = folder / "rad.toml"
        config.write_text(
            f'[paths]\nslurm_conf = "{folder}/slurm.conf"\nkey = "{folder}/key"\n'
            f'socket = "{folder}/radd.sock"\nrun = "{folder}/run"\n'
            "[partition.gpu]\ncollocate = true\nshards_per_gpu = 10\n"
        )
        return config

    def test_what_lies_on_the_machine_is_seen(self, tmp_path: Path):
        facts = gather(self.files(tmp_path), {}, SystemClock())
        assert facts.config is not None
        assert facts.slurm is not None
        assert facts.slurm.settings["grestypes"] == "gpu,shard"
        assert facts.hooks["prolog"] == "python -m prolog\n"
        assert (facts.hooks["epilog"], facts.key_error, facts.radd_here) == (None, "", False)

    @pytest.mark.parametrize("order", [0, 1])
    def test_radd_belongs_on_each_controller(self, tmp_path: Path, order: int):
        """Of two lines for controllers the last one counted, so no job missed radd on the first."""
        config = self.files(tmp_path)
        named = [socket.gethostname(), "another"]
        lines = [f"SlurmctldHost={name}(127.0.0.1)\n" for name in (named[order], named[1 - order])]
        (tmp_path / "slurm.conf").write_text("".join(lines))
        facts = gather(config, {}, SystemClock())
        assert facts.radd_here and facts.controllers == (named[order], named[1 - order])

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
    @pytest.mark.parametrize(("owner", "reported"), [("nobody", ""), ("root", "chown nobody")])
    def test_radd_must_be_able_to_read_the_key(self, tmp_path: Path, owner: str, reported: str):
        config = self.files(tmp_path)
        host = socket.gethostname().partition(".")[0]
        with (tmp_path / "slurm.conf").open("a") as file:
            file.write(f"SlurmUser=nobody\nSlurmctldHost={host}\n")
        shutil.chown(tmp_path / "key", owner)
        error = gather(config, {}, SystemClock()).key_error
        assert error is not None and (error == "" if not reported else reported in error)

    @pytest.mark.parametrize(
        ("answer", "reported"),
        [
            (b'{"v": 1, "pong": true}\n', "ok"),
            (b'{"v": 1, "pong": true, "leaves_jobs": ""}\n', "ok"),
            (b'{"v": 1, "pong": true, "leaves_jobs": "no shards"}\n', "found when it started, no shards"),
            (b"what?\n", "no answer"),
            (b'{"error": "no"}\n', "not radd's"),
        ],
    )
    def test_radd_is_queried(self, tmp_path: Path, answer: bytes, reported: str):
        facts = self.answered(tmp_path, answer)
        assert facts.radd is not None
        assert reported in facts.radd and facts.undecided == 0

    @pytest.mark.parametrize(
        ("reported", "undecided"),
        [
            ({"undecided": 3, "undecided_age_s": 60}, 3),
            ({"undecided": 3, "undecided_age_s": 86_400}, 0),
            ({"undecided": 0, "undecided_age_s": 60}, 0),
            ({"undecided": None, "undecided_age_s": None}, 0),
            ({}, 0),
        ],
    )
    def test_what_radd_missed_within_a_day_is_reported(
        self, tmp_path: Path, reported: dict[str, object], undecided: int
    ):
        facts = self.answered(tmp_path, json.dumps({"v": 1, "pong": True, **reported}).encode() + b"\n")
        assert (facts.radd, facts.undecided) == ("ok", undecided)
        of_radd = [each for each in check_controller(facts) if each.subject == "radd"]
        assert [each.level for each in of_radd] == ["ok", *(["warn"] if undecided else [])]
        assert not undecided or of_radd[1].text.startswith("3 submissions")

    def test_radds_key_settings_and_slurm_are_compared_with_those_here(self, tmp_path: Path):
        self.files(tmp_path)
        key = fingerprint(bytes(32))
        settings = in_use(load_config(tmp_path / "rad.toml"), tmp_path / "rad.toml")
        right = {"v": 1, "pong": True, "key": key, "settings": settings}
        for change, subject in (
            ({}, None),
            ({"key": "00000000"}, "key"),
            ({"settings": f"0 {tmp_path}/rad.toml"}, "radd"),
            ({"settings": "0 /other.toml"}, None),
            ({"slurm": "24.11.5"}, None),
            ({"slurm": "22.05.8"}, "Slurm"),
        ):
            facts = self.answered(tmp_path, json.dumps(right | change).encode() + b"\n")
            facts = dataclasses.replace(facts, version=(24, 11, 5))
            (tmp_path / "radd.sock").unlink()
            found = [*check_controller(facts), *check_daemons(facts)]
            assert [each.subject for each in found if each.level == "fail"] == ([subject] if subject else [])
            assert any(key in each.text for each in found if each.subject == "key")

    def test_a_monitor_with_other_settings_is_found(self, tmp_path: Path):
        config = self.files(tmp_path)
        now_s = SystemClock().now_s()
        for settings, wrong in (
            (in_use(load_config(config), config), False),
            (f"0 {config}", True),
            ("", False),
        ):
            write_window(tmp_path / "run", (), now_s=now_s, settings=settings)
            found = list(check_daemons(gather(config, {}, SystemClock())))
            assert [each.subject for each in found] == (["rad-monitor"] if wrong else [])

    def test_a_full_file_system_is_found(self, tmp_path: Path):
        config = self.files(tmp_path)
        with small_disk(tmp_path / "run", "size=4m,nr_inodes=100") as folder:
            assert not list(check_daemons(gather(config, {}, SystemClock())))
            fill(folder)
            (found,) = check_daemons(gather(config, {}, SystemClock()))
        assert found.subject == "space" and str(tmp_path / "run") in found.text

    @pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
    def test_a_log_folder_that_radds_user_may_not_write_to_is_found(self, tmp_path: Path):
        config = self.files(tmp_path)
        log = tmp_path / "log"
        log.mkdir(mode=0o755)
        (tmp_path / "radd.sock").touch()
        with (tmp_path / "slurm.conf").open("a") as conf:
            conf.write("SlurmUser=nobody\n")
        config.write_text(config.read_text().replace("run = ", f'log = "{log}"\nrun = ', 1))
        (found,) = check_daemons(gather(config, {}, SystemClock()))
        assert (found.level, found.subject) == ("warn", "radd") and f"not write to {log}" in found.text
        subprocess.run(found.actions[0].argv, check=True)
        assert not list(check_daemons(gather(config, {}, SystemClock())))

    def answered(self, tmp_path: Path, answer: bytes) -> Facts:
        """Return what is found next to a radd that answers so."""
        config = self.files(tmp_path)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "radd.sock"))
            listener.listen()

            def serve() -> None:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1000)
                    connection.sendall(answer)

            server = threading.Thread(target=serve)
            server.start()
            facts = gather(config, {}, SystemClock())
            server.join()
        return facts

    def test_a_radd_that_is_gone(self, tmp_path: Path):
        config = self.files(tmp_path)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "radd.sock"))
        facts = gather(config, {}, SystemClock())
        assert "no answer" in (facts.radd or "")
        for state, verb in (
            ("active", "restart"),
            ("inactive", "enable --now"),
            ("disabled", "enable --now"),
        ):
            found = check_controller(dataclasses.replace(facts, units={"radd": state}))
            assert [each.fix for each in found if each.subject == "radd"] == [f"run: systemctl {verb} radd"]

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs a key that root alone can open")
    def test_an_open_key_is_said(self, tmp_path: Path):
        config = self.files(tmp_path)
        (tmp_path / "key").chmod(0o644)
        assert "chmod 600" in (gather(config, {}, SystemClock()).key_error or "")

    def test_the_command(self, tmp_path: Path):
        result = CliRunner().invoke(main, ["doctor", "--config", str(self.files(tmp_path)), "--json"])
        findings = json.loads(result.output)["findings"]
        assert {"level", "subject", "text", "fix", "actions"} == set(findings[0])
        assert result.exit_code == 1

    def test_a_wrong_rad_toml_is_one_finding(self, tmp_path: Path):
        (tmp_path / "rad.toml").write_text("modus = 1\n")
        result = CliRunner().invoke(main, ["doctor", "--config", str(tmp_path / "rad.toml")])
        assert "unknown key modus; did you mean mode?" in result.output
        assert result.exit_code == 1


def test_shards_leave_space_for_mps_servers() -> None:
    rows = tuple(row | ({"count": "139"} if "count" in row else {}) for row in GRES)
    config = sharing()
    config = dataclasses.replace(
        config, partitions={"gpu": dataclasses.replace(config.partitions["gpu"], shards_per_gpu=139)}
    )
    facts = dataclasses.replace(GOOD, gres=ConfFile(lines=rows), config=config)
    reported = [found for found in examine(facts) if "leave no memory for MPS" in found.text]
    assert [found.level for found in reported] == ["warn", "warn"]
    assert "count=138" in reported[0].fix.lower() and "shards_per_gpu = 138" in reported[0].fix
    streams = dataclasses.replace(config.partitions["gpu"], sharing="streams")
    plain = dataclasses.replace(facts, config=dataclasses.replace(config, partitions={"gpu": streams}))
    assert not [found for found in examine(plain) if "leave no memory for MPS" in found.text]
    off = dataclasses.replace(facts, config=dataclasses.replace(config, features=Features(mps=False)))
    assert not [found for found in examine(off) if "leave no memory for MPS" in found.text]


def test_to_share_several_gpus_needs_a_slurm_that_spreads_shards() -> None:
    old = dataclasses.replace(
        GOOD, config=several_share(), version=(22, 5, 8), **slurm(selecttypeparameters="CR_Core")
    )
    texts = [finding.text for finding in troubles(old)]
    assert "share_multi_gpu of gpu needs Slurm 23.11: jobs with several GPUs do not share them" in texts
    ready = slurm(selecttypeparameters="CR_Core_Memory,LL_SHARED_GRES,MULTIPLE_SHARING_GRES_PJ")
    assert troubles(dataclasses.replace(GOOD, config=several_share(), **ready)) == []


def test_a_configless_login_node_is_sent_no_gres_conf() -> None:
    facts = dataclasses.replace(GOOD, slurm_conf_path=Path("/run/slurm/conf/slurm.conf"), gres=None)
    found = [each for each in examine(facts) if each.subject == "gres.conf"]
    assert [each.level for each in found] == ["unseen"]
    facts = dataclasses.replace(GOOD, gres=None)
    assert [each.level for each in examine(facts) if each.subject == "gres.conf"] == ["fail"]


@pytest.mark.parametrize(
    ("enforced", "chosen", "others"),
    [
        ("", "user", ["gpu"]),
        ("", "gpu", ["user"]),
        ("associations", "account", ["user", "gpu"]),
        ("associations", "gpu", ["user", "account"]),
    ],
)
def test_it_says_what_another_mps_server_would_bring(enforced: str, chosen: str, others: list[str]) -> None:
    slurm = ConfFile(settings={**SLURM, "accountingstorageenforce": enforced}, lines=NODES)
    facts = dataclasses.replace(GOOD, config=sharing(mps_server=chosen), slurm=slurm)
    (found,) = (one for one in examine(facts) if one.subject == "MPS servers")
    assert found.level == "ok" and f'mps_server = "{chosen}": ' in found.text
    assert re.findall(r'with "(\w+)"', found.text) == others
