"""Checks of the Lua files that slurmctld, login nodes and GPU nodes load."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.finding import Finding, fail, ok, unseen, warn
from slurm_plugin.admin.doctor.fixes import LineChange, command
from slurm_plugin.admin.doctor.slurm_state import in_slurm_folder
from slurm_plugin.admin.own_files.steps import left_alone
from slurm_plugin.admin.own_files.templates import lua_folder

_LUA_MODULES = {"job_submit": "rad", "cli_filter": "rad_cli"}

_SETTINGS = "rad_settings.lua"
"""The site's settings: radd's socket and the trusted users; without the file Lua uses defaults."""

_REQUIRES = re.compile(r"""(?m)^local .*\brequire\(["'](rad_\w+)["']\)""")

_CALLS = {
    "job_submit": """\
package.path = "{folder}/rad/?.lua;" .. package.path
local rad_found, rad = pcall(require, "rad")
local site_submit, site_modify = slurm_job_submit, slurm_job_modify
function slurm_job_submit(job_desc, part_list, submit_uid)
  local code = site_submit(job_desc, part_list, submit_uid)
  if code ~= slurm.SUCCESS or not rad_found then return code end
  return rad.submit(job_desc, part_list, submit_uid)
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  local code = site_modify(job_desc, job_rec, part_list, modify_uid)
  if code ~= slurm.SUCCESS or not rad_found then return code end
  return rad.modify(job_desc, job_rec, part_list, modify_uid)
end""",
    "cli_filter": """\
package.path = "{folder}/rad/?.lua;" .. package.path
local rad_found, rad_cli = pcall(require, "rad_cli")
local site_pre_submit = slurm_cli_pre_submit
function slurm_cli_pre_submit(options, pack_offset)
  local code = site_pre_submit(options, pack_offset)
  if code ~= slurm.SUCCESS or not rad_found then return code end
  return rad_cli.pre_submit(options, pack_offset)
end""",
}
"""Calls of RAD in a site's script, placed above its last `return`."""


def check_lua(facts: Facts) -> Iterator[Finding]:
    """Check that the Lua scripts exist, load RAD's files, and can reach radd."""
    if facts.slurm is None:
        return
    for name, loss, then in (
        ("job_submit", fail, "jobs are submitted unchanged"),
        ("cli_filter", warn, "no model summary is read"),
    ):
        text = facts.lua.get(name)
        path = in_slurm_folder(facts, f"{name}.lua")
        if text is None and name == "job_submit" and facts.radd_here and not facts.configless:
            yield fail(f"{name}.lua", f"{path} is missing, and slurmctld will not start", "run: rad install")
        elif text is None:
            where = "the controller" if name == "job_submit" else "login nodes and GPU nodes"
            yield unseen(f"{name}.lua", f"not in the folder of slurm.conf here; it belongs on {where}")
        elif not re.search(rf"""(?m)^[^-\n]*require\W+{_LUA_MODULES[name]}\b""", text):
            new = _CALLS[name].format(folder=path.parent)
            returns = [n for n, line in enumerate(text.splitlines(), 1) if re.match(r"return\b", line)]
            fix = LineChange(path=path, first=returns[-1] if returns else 0, new=new)
            yield loss(f"{name}.lua", "a script of the site's own that does not call RAD", fix)
        else:
            yield _called(facts, name, path, loss, then)
    yield from _sockets(facts)


def _called(facts: Facts, name: str, path: Path, loss: Callable[..., Finding], then: str) -> Finding:
    """Report whether the files that a script calls can be loaded, and are what this release would write."""
    shipped = {each.name: each.read_text(encoding="utf-8") for each in lua_folder().glob("*.lua")}
    own = None if facts.lua.get(name) == shipped[f"{name}.lua"] else facts.lua_left.get(f"{name}.lua")
    calls = "calls RAD" if own is None else f"calls RAD; {left_alone(own)}"
    there, first = facts.lua_files, f"{_LUA_MODULES[name]}.lua"
    if there is None:
        return ok(f"{name}.lua", calls)
    folder = "/etc/slurm/rad (slurmctld sends no folders)" if facts.configless else f"{path.parent}/rad"
    if gone := sorted(_loaded(first, there) - there.keys()):
        text = f"it calls RAD, but {folder} lacks {', '.join(gone)}: {then}"
        return loss(f"{name}.lua", text, command("rad install"))
    other = sorted(
        each for each in _loaded(first, shipped) if there.get(each, "") not in (None, shipped[each])
    )
    other += [] if _SETTINGS in there else [_SETTINGS]
    if other:
        left = {each: why for each in other if (why := facts.lua_left.get(each)) is not None}
        named = (f"{each} ({left_alone(left[each])})" if each in left else each for each in other)
        text = (
            f"it calls RAD, and the files in {folder} work, but differ from this release: {', '.join(named)}"
        )
        if not left:
            return warn(f"{name}.lua", text, command("rad install"))
        return warn(
            f"{name}.lua",
            text,
            f"unless this is intended, move {', '.join(left)} away, then run: rad install",
        )
    return ok(f"{name}.lua", calls)


def _loaded(first: str, files: Mapping[str, str | None]) -> frozenset[str]:
    """Return the files that Lua must find to load one of RAD's files: what it requires, and what those require.

    A file required in a pcall may be missing.
    """
    found, new = frozenset[str](), frozenset({first})
    while new:
        found |= new
        texts = (files.get(name) or "" for name in new)
        new = frozenset(f"{name}.lua" for text in texts for name in _REQUIRES.findall(text)) - found
    return found


def _sockets(facts: Facts) -> Iterator[Finding]:
    if facts.lua_sockets:
        yield ok("Lua sockets", f"for Lua {', '.join(facts.lua_sockets)}")
    else:
        text = "not found: on a controller, job_submit.lua cannot reach radd and submits every job unchanged"
        yield warn("Lua sockets", text, "apt install lua-posix, or dnf install lua-posix")
