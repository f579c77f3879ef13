"""Checks of `rad doctor` on slurm.conf, the hooks and the Lua scripts."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.finding import Finding, Fix, fail, ok, unseen, warn
from slurm_plugin.admin.doctor.fixes import LineChange, command
from slurm_plugin.admin.doctor.slurm_state import in_slurm_folder, rad_toml, sharing, slurm_conf
from slurm_plugin.slurm.node.hook_scripts import is_pattern, lines_of, scripts_of
from slurm_plugin.slurm.versions import DEFAULT_PARAMETERS, OLDEST, SPREADING, traits

_HOOKS = {
    "Prolog": ("prolog", "prolog.sh"),
    "TaskProlog": ("prolog.task_prolog", "task_prolog.sh"),
    "Epilog": ("epilog", "epilog.sh"),
}
"""Setting of slurm.conf -> RAD's module, and the script that starts it."""
_LINKS = ("50-rad", "50-rad.sh", "rad")
"""File names for a script that starts RAD's where slurm.conf names a pattern; the first match is used."""
_SHELL = re.compile(r"#!\s*(\S*/env\s+)?\S*\b(ba|da|k|z)?sh\b")
_PLUGIN_FILES = {"JobSubmitPlugins": "job_submit", "CliFilterPlugins": "cli_filter"}
_COMPARED = ("GresTypes", "SelectTypeParameters", "JobSubmitPlugins", "CliFilterPlugins", "PrologFlags")
_FLAGS = ("Alloc", "DeferBatch")
"""PrologFlags that sharing needs. Without DeferBatch a batch launch may reach its node before the Prolog. There it
waits for the Prolog and gives up after 2 x MessageTimeout wake-ups; each other Prolog wakes it
(`_wait_for_request_launch_prolog` in slurmd/req.c, 22.05.8 to 26.05.3).
"""


def check_slurm_conf(facts: Facts) -> Iterator[Finding]:
    """Check slurm.conf: GRES, selection, plugins."""
    if facts.slurm is None or facts.slurm_conf_path is None:
        yield unseen("slurm.conf", "not found here; set paths.slurm_conf in rad.toml")
        return
    if facts.slurm_conf_of_shell:
        text = "only SLURM_CONF of this shell names it; radd, rad-monitor and TaskProlog may not find it"
        value = json.dumps(str(facts.slurm_conf_path))
        yield fail("slurm.conf", text, rad_toml(facts, "paths", "slurm_conf", value))
    missing = [name for name in ("gpu", "shard") if name not in _words(facts, "GresTypes")]
    if missing:
        kinds = ",".join([*_words(facts, "GresTypes"), *missing])
        yield fail(
            "slurm.conf", f"GresTypes lacks {', '.join(missing)}", slurm_conf(facts, "GresTypes", kinds)
        )
    select = _select_type(facts)
    if select != "cons_tres":
        text = "shards need cons_tres"
        if "selecttype" not in facts.slurm.settings:
            text += f", and without SelectType= this Slurm has {select}"
        if select != "cons_res":
            text += "; a change of SelectType loses all jobs, running and pending"
        yield fail("slurm.conf", text, slurm_conf(facts, "SelectType", "select/cons_tres"))
    else:
        yield from _check_select_parameters(facts)
    yield from _check_plugins(facts)
    if facts.slurm.settings.get("jobrequeue") == "0":
        text = "JobRequeue=0: only jobs with --requeue are recovered"
        yield warn("slurm.conf", text, slurm_conf(facts, "JobRequeue", "1"))
    if lacking := [flag for flag in _FLAGS if flag.lower() not in _lower(facts, "PrologFlags")]:
        flags = ",".join([*_words(facts, "PrologFlags"), *lacking])
        fix = slurm_conf(facts, "PrologFlags", flags)
        if "Alloc" in lacking:
            yield warn("slurm.conf", "salloc and srun reach a node before its Prolog has run", fix)
        else:
            text = "where many jobs start at once, Slurm counts some Prologs as failed and drains the node"
            yield warn("slurm.conf", text, fix)
    yield from _check_restarted(facts)
    yield ok("slurm.conf", f"{facts.slurm_conf_path} was read")


def _select_type(facts: Facts) -> str:
    """Return the last word of SelectType: of slurm.conf, else of the running slurmctld, else this release's default."""
    named = "" if facts.slurm is None else facts.slurm.settings.get("selecttype", "")
    running = "" if facts.live is None else facts.live.settings.get("selecttype", "")
    default = traits(facts.version or OLDEST).select_type
    return (named or running or default).lower().rpartition("/")[2]


def _words(facts: Facts, name: str) -> list[str]:
    """Return the entries of a list in slurm.conf as written."""
    text = "" if facts.slurm is None else facts.slurm.settings.get(name.lower(), "")
    return [word.strip() for word in text.split(",") if word.strip()]


def _lower(facts: Facts, name: str) -> list[str]:
    return [word.lower() for word in _words(facts, name)]


def _check_plugins(facts: Facts) -> Iterator[Finding]:
    for name, loss in (
        ("JobSubmitPlugins", "no request is turned into shards"),
        ("CliFilterPlugins", "model summaries are not read, and a direct srun is not rewritten on 22.05"),
    ):
        if "lua" not in [word.rpartition("/")[2] for word in _lower(facts, name)]:
            found = fail if name == "JobSubmitPlugins" else warn
            fix = slurm_conf(facts, name, ",".join([*_words(facts, name), "lua"]))
            yield found("slurm.conf", f"without {name}=lua {loss}", fix)
        elif facts.plugins is not None and f"{_PLUGIN_FILES[name]}_lua" not in facts.plugins:
            text = f"{name}=lua, but this Slurm has no {_PLUGIN_FILES[name]}_lua.so and will not start"
            yield fail(
                "slurm.conf", text, "apt install slurm-wlm-basic-plugins, or build Slurm with Lua's headers"
            )


def _check_select_parameters(facts: Facts) -> Iterator[Finding]:
    """Check SelectTypeParameters; each fix is the complete final line, so that fixes can be made in any order."""
    written = _words(facts, "SelectTypeParameters") or [DEFAULT_PARAMETERS]
    lower = [word.lower() for word in written]
    wanted = list(written)
    if not any("memory" in word for word in lower):
        wanted = [DEFAULT_PARAMETERS, *(word for word in written if not word.lower().startswith("cr_"))]
    spreads = facts.version is None or traits(facts.version).spreads_shards
    if facts.version is not None and spreads and "ll_shared_gres" not in lower:
        wanted.append("LL_SHARED_GRES")
    shares = [name for name, partition in sharing(facts) if partition.share_multi_gpu]
    if facts.version is not None and spreads and shares and SPREADING.lower() not in lower:
        wanted.append(SPREADING)
    if not spreads:
        wanted = [word for word in wanted if word.lower() not in ("ll_shared_gres", SPREADING.lower())]
    fix = slurm_conf(facts, "SelectTypeParameters", ",".join(wanted))
    if not any("memory" in word for word in lower):
        text = "host memory is not counted, so jobs that share a node can exhaust it"
        yield warn("slurm.conf", text, fix)
    if facts.version is None:
        return
    if "ll_shared_gres" in lower and not spreads:
        yield fail("slurm.conf", "this Slurm does not know LL_SHARED_GRES and will not start", fix)
    if "ll_shared_gres" not in lower and spreads:
        yield warn("slurm.conf", "Slurm fills one GPU with shards before it takes the next", fix)
    if shares and not spreads:
        text = f"share_multi_gpu of {shares[0]} needs Slurm 23.11: jobs with several GPUs do not share them"
        yield warn("rad.toml", text, rad_toml(facts, f"partition.{shares[0]}", "share_multi_gpu", "false"))
    if SPREADING in wanted and SPREADING.lower() not in lower:
        text = f"no {SPREADING}, so jobs with several GPUs do not share them (share_multi_gpu)"
        yield warn("slurm.conf", text, fix)


def _check_restarted(facts: Facts) -> Iterator[Finding]:
    """Check that slurmctld runs with the current slurm.conf; some settings change only at a restart."""
    if facts.live is None:
        return
    for name in _COMPARED:
        running = facts.live.settings.get(name.lower(), "").lower().split(",")
        if set(_lower(facts, name)) - {word.strip() for word in running}:
            values = ",".join(_words(facts, name))
            text = f"slurmctld runs with {name}={','.join(running)}; slurm.conf has had {values} since"
            yield fail("slurm.conf", text, command("systemctl restart slurmctld"))


def check_hooks(facts: Facts) -> Iterator[Finding]:
    """Check that Prolog, TaskProlog and Epilog start RAD's hooks."""
    if facts.slurm is None:
        return
    for name, (module, script) in _HOOKS.items():
        named = lines_of(facts.slurm, name, facts.version)
        path = ", ".join(named)
        own_path = facts.config_path.with_name(script)
        guard = str(
            in_slurm_folder(facts, "slurm.conf").parent / "rad" / script
        )  # exists where RAD's hook does not (templates.py)
        text = facts.hooks.get(name.lower())
        if not named:
            yield fail(name, "slurm.conf names none", slurm_conf(facts, name, guard))
        elif text is None and not is_pattern(named[-1]):
            yield unseen(name, f"{path} cannot be read here; it must be on every GPU node")
        elif text is None or not _starts(text, module, script):
            words = f"{path} does not start `python -m {module}`"
            yield fail(name, words, _started(facts, name, named[-1], own_path, text or ""))
        elif facts.executable.get(name.lower()) is False:
            paths = scripts_of(named, in_slurm_folder(facts, "slurm.conf").parent)
            run = command(f"chmod 755 {shlex.join(map(str, paths))}")
            yield fail(name, f"{path} is not executable", run)
        else:
            yield ok(name, path)


def _started(facts: Facts, name: str, named: str, own_path: Path, text: str) -> Fix:
    """Return the change that makes Slurm start RAD's hook in addition to the site's.

    Args:
        facts: The collected facts.
        name: The setting.
        named: The value in slurm.conf, from the last line that sets it.
        own_path: RAD's script.
        text: Text of the site's script.
    """
    there = in_slurm_folder(facts, "slurm.conf").parent / named
    at = None if facts.slurm is None else facts.slurm.settings_at.get(name.lower())
    if there == own_path:
        return f"rad install --dry-run shows what {named} must say"
    if is_pattern(named):
        link = next((each for each in _LINKS if fnmatch(each, there.name)), "")
        if not link or is_pattern(str(there.parent)):
            return f"put a script that runs `exec {own_path}` where {named} finds it"
        new = LineChange(path=there.with_name(link), new=f"#!/bin/sh\n[ ! -x {own_path} ] || exec {own_path}")
        return (new, command(f"chmod 755 {new.path}"))
    if at is not None and facts.version and traits(facts.version).joins_hooks and name != "TaskProlog":
        guard = in_slurm_folder(facts, "slurm.conf").parent / "rad" / own_path.name
        return LineChange(path=at.path, first=at.first, new=f"{name}={guard}")
    first = text.splitlines()[0] if text else ""
    if first.startswith("#!") and not _SHELL.match(first):
        return f"{named} is no shell script: name one that starts both, {own_path} and then {named}"
    refuses = " || exit $?" if name == "TaskProlog" else ""  # a requeued job must not start
    return LineChange(
        path=there,
        first=2 if first.startswith("#!") else 1,
        new=f"[ ! -x {own_path} ] || {own_path}{refuses}",
    )


def _starts(text: str, module: str, script: str) -> bool:
    """Return whether a script starts RAD's hook, by module or script; comments do not count."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    pattern = rf"-m\s+{re.escape(module)}(?![\w.])|/{re.escape(script)}(?!\w)"
    return any(re.search(pattern, line) for line in lines)
