"""The checks of `rad doctor` on Slurm's side: pure functions of what was seen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from slurm_plugin.admin.checks_gpu import check_gpus, check_gres, check_guard, check_mps, check_nodes
from slurm_plugin.admin.checks_limits import check_limits
from slurm_plugin.admin.facts import Facts
from slurm_plugin.admin.finding import Finding, fail, ok, unseen, warn
from slurm_plugin.core.config import Features
from slurm_plugin.core.last_good import copy_of
from slurm_plugin.slurm.versions import NEWEST, OLDEST, known, traits

_HOOK_MODULES = {"prolog": "prolog", "taskprolog": "prolog.task_prolog", "epilog": "epilog"}
_PLUGIN_FILES = {"JobSubmitPlugins": "job_submit", "CliFilterPlugins": "cli_filter"}
_LUA_MODULES = {"job_submit": "rad", "cli_filter": "rad_cli"}
_HOOK_NAMES = {"prolog": "Prolog", "taskprolog": "TaskProlog", "epilog": "Epilog"}
_HOOK_SCRIPTS = {"prolog": "prolog.sh", "taskprolog": "task_prolog.sh", "epilog": "epilog.sh"}


def examine(facts: Facts) -> list[Finding]:
    """Return the findings of every check."""
    return [finding for check in _CHECKS for finding in check(facts)]


def check_config(facts: Facts) -> Iterator[Finding]:
    """rad.toml: readable, every key known, at least one partition that shares GPUs."""
    subject = "rad.toml"
    if facts.config is None:
        yield fail(subject, facts.config_error, "mend the key that is named, or run: rad install")
        return
    sharing = [name for name, partition in facts.config.partitions.items() if partition.collocate]
    if facts.config.mode != "enforce":
        yield warn(subject, f"mode is {facts.config.mode!r}: nothing is changed", 'set mode = "enforce"')
    if not facts.config_copied:
        text = f"no copy of it is kept at {copy_of(facts.config_path)}, for when it is broken"
        yield warn(subject, text, "run rad doctor as root; a GPU node's hooks keep one with each job")
    if not sharing:
        yield warn(subject, "no partition shares GPUs", "add [partition.NAME] with collocate = true")
    else:
        yield ok(subject, f"{facts.config_path}: sharing in {', '.join(sharing)}")
    features, usual = facts.config.features, Features()
    switched_off = [
        name for name in features.__slots__ if getattr(usual, name) and not getattr(features, name)
    ]
    if switched_off:
        yield warn(subject, f"switched off: {', '.join(switched_off)}", "see [features]")


def check_version(facts: Facts) -> Iterator[Finding]:
    """Slurm's version lies in the table of differences."""
    if facts.version is None:
        yield unseen("Slurm", "no Slurm program is installed here")
        return
    text = ".".join(map(str, facts.version))
    oldest, newest = (f"{version[0]}.{version[1]:02d}" for version in (OLDEST, NEWEST))
    if facts.version < OLDEST:
        yield fail("Slurm", f"{text} is older than {oldest}", f"upgrade Slurm to {oldest} or later")
    elif not known(facts.version):
        yield warn("Slurm", f"{text} is newer than {newest}, the newest tried", f"it is treated as {newest}")
    else:
        yield ok("Slurm", text)


def check_slurm_conf(facts: Facts) -> Iterator[Finding]:
    """slurm.conf: GRES, selection, plugins."""
    if facts.slurm is None or facts.slurm_conf_path is None:
        yield unseen("slurm.conf", "not found here; set paths.slurm_conf in rad.toml")
        return
    settings = {name: value.lower() for name, value in facts.slurm.settings.items()}
    gres_types = settings.get("grestypes", "").split(",")
    missing = [name for name in ("gpu", "shard") if name not in gres_types]
    if missing:
        yield fail("slurm.conf", f"GresTypes lacks {', '.join(missing)}", "GresTypes=gpu,shard")
    if settings.get("selecttype", "select/cons_tres") != "select/cons_tres":
        yield fail("slurm.conf", "shards need cons_tres", "SelectType=select/cons_tres")
    yield from _check_select_parameters(facts, settings.get("selecttypeparameters", ""))
    for name, plugin, loss in (
        ("JobSubmitPlugins", "lua", "no request is turned into shards"),
        (
            "CliFilterPlugins",
            "lua",
            "model summaries are not read, and a direct srun is not rewritten on 22.05",
        ),
    ):
        if plugin not in [
            word.strip().rpartition("/")[2] for word in settings.get(name.lower(), "").split(",")
        ]:
            found = fail if name == "JobSubmitPlugins" else warn
            yield found("slurm.conf", f"without {name}={plugin} {loss}", f"{name}={plugin}")
        elif facts.plugins is not None and f"{_PLUGIN_FILES[name]}_{plugin}" not in facts.plugins:
            text = (
                f"{name}={plugin}, but this Slurm has no {_PLUGIN_FILES[name]}_{plugin}.so and will not start"
            )
            yield fail(
                "slurm.conf", text, "apt install slurm-wlm-basic-plugins, or build Slurm with Lua's headers"
            )
    if settings.get("jobrequeue") == "0":
        yield warn("slurm.conf", "JobRequeue=0: only jobs with --requeue are recovered", "JobRequeue=1")
    if "alloc" not in settings.get("prologflags", ""):
        yield warn(
            "slurm.conf", "salloc and srun reach a node before its Prolog has run", "PrologFlags=Alloc"
        )
    yield ok("slurm.conf", f"{facts.slurm_conf_path} was read")


def _check_select_parameters(facts: Facts, parameters: str) -> Iterator[Finding]:
    if "memory" not in parameters:
        text = "host memory is not counted, so jobs that share a node can exhaust it"
        yield warn("slurm.conf", text, "SelectTypeParameters=CR_Core_Memory")
    if facts.version is None:
        return
    spreads = traits(facts.version).spreads_shards
    if "ll_shared_gres" in parameters and not spreads:
        yield fail("slurm.conf", "this Slurm does not know LL_SHARED_GRES", "remove it")
    if "ll_shared_gres" not in parameters and spreads:
        text = "Slurm fills one GPU with shards before it takes the next"
        yield warn("slurm.conf", text, "add LL_SHARED_GRES to SelectTypeParameters")


def check_hooks(facts: Facts) -> Iterator[Finding]:
    """Prolog, TaskProlog and Epilog lead to ours."""
    if facts.slurm is None:
        return
    for key, module in _HOOK_MODULES.items():
        name = _HOOK_NAMES[key]
        path = facts.slurm.settings.get(key)
        if not path:
            yield fail(name, "slurm.conf names none", f"{name}=/etc/rad/{_HOOK_SCRIPTS[key]}")
        elif facts.hooks.get(key) is None:
            yield unseen(name, f"{path} cannot be read here; it must be on every GPU node")
        elif module not in (facts.hooks[key] or ""):
            fix = f"call ours from it: /opt/rad/venv/bin/python -I -m {module}"
            yield fail(name, f"{path} does not start `python -m {module}`", fix)
        else:
            yield ok(name, path)


def check_lua(facts: Facts) -> Iterator[Finding]:
    """The Lua scripts are there, lead to ours, and can reach radd."""
    if facts.slurm is None:
        return
    for name, loss in (("job_submit", fail), ("cli_filter", warn)):
        text = facts.lua.get(name)
        if text is None:
            yield unseen(
                f"{name}.lua",
                "not beside slurm.conf here; it belongs on the controller"
                if name == "job_submit"
                else "not beside slurm.conf here; it belongs on login nodes",
            )
        elif not re.search(rf"""require\W+{_LUA_MODULES[name]}\b""", text):
            fix = f"add the marked lines of our {name}.lua to it: docs/admin.md, A Lua script of your own"
            yield loss(f"{name}.lua", "a script of the site's own that does not call RAD", fix)
        else:
            yield ok(f"{name}.lua", "calls RAD")
    if facts.lua_sockets:
        yield ok("Lua sockets", f"for Lua {', '.join(facts.lua_sockets)}")
    else:
        text = "not found: on a controller, job_submit.lua cannot reach radd and leaves every job as it is"
        yield warn("Lua sockets", text, "apt install lua-socket, or dnf install lua-posix")


def check_controller(facts: Facts) -> Iterator[Finding]:
    """The cluster's key, radd and the units."""
    if facts.key_error is None:
        yield unseen("key", "only root and SlurmUser may look at it")
    elif facts.key_error:
        yield fail("key", facts.key_error, "it must be the same 0600 file on controller and GPU nodes")
    else:
        yield ok("key", "private")
    if not facts.radd_here:
        yield unseen("radd", "its socket is not on this machine; look on the controller")
    elif facts.radd == "ok":
        yield ok("radd", "answers")
    else:
        yield fail("radd", facts.radd or "no answer", "systemctl restart radd; journalctl -u radd")
    for unit, state in facts.units.items():
        wanted = facts.gpu_node if unit == "rad-monitor" else facts.radd_here
        if wanted and state != "active":
            yield warn(f"{unit}.service", state, f"systemctl enable --now {unit}")


_CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    check_config,
    check_version,
    check_slurm_conf,
    check_hooks,
    check_lua,
    check_controller,
    check_limits,
    check_nodes,
    check_gres,
    check_gpus,
    check_mps,
    check_guard,
)
