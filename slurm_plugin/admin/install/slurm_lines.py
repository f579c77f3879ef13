"""Remove from Slurm's files what RAD had an admin add. Pure: text in, text out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from slurm_plugin.slurm.files.conf_lines import lines_of

HOOKS = ("prolog", "epilog", "taskprolog")
_LISTS = {
    "grestypes": "shard",
    "accountingstoragetres": "gres/shard",
    "selecttypeparameters": "ll_shared_gres",
}
"""Lists in slurm.conf, and RAD's word in each."""
_SCRIPTS = {"jobsubmitplugins": "job_submit.lua", "clifilterplugins": "cli_filter.lua"}
"""Lists that name `lua`, and the script that is loaded for it."""
_SETTING = re.compile(r"^(\s*)(\w+)(\s*=\s*)([^\s#]*)", re.ASCII)
_NODE_SHARDS = re.compile(r"(?<=[=,])shard:[^\s,#]*,?|,shard:[^\s,#]*", re.IGNORECASE)

_SHARD_WEIGHT = re.compile(r"(?<=[=,])gres/shard=[^\s,#\"]*,?|,gres/shard=[^\s,#\"]*", re.IGNORECASE)


def slurm_conf_without(text: str, own_paths: Collection[str], *, shards: bool = True) -> str:
    r"""Return slurm.conf without shards, RAD's hooks and RAD's Lua scripts; every other byte stays.

    Args:
        text: slurm.conf.
        own_paths: Paths of files that RAD wrote. Any other hook or script is the site's and stays.
        shards: Whether its shards, and what counts and spreads them, are RAD's.

    >>> slurm_conf_without("GresTypes=gpu,shard\nProlog=/etc/rad/prolog.sh\n", {"/etc/rad/prolog.sh"})
    'GresTypes=gpu\n'
    """
    names = {path.rpartition("/")[2] for path in own_paths}

    def edited(line: str) -> str:
        if not shards and re.match(r"\s*(nodename|partitionname)\s*=", line, re.IGNORECASE):
            return line
        if re.match(r"\s*nodename\s*=", line, re.IGNORECASE):
            fewer = _NODE_SHARDS.sub("", line)
            return line if fewer == line else re.sub(r"\s+Gres=(?=\s|$)", "", fewer, flags=re.IGNORECASE)
        if re.match(r"\s*partitionname\s*=", line, re.IGNORECASE):
            fewer = _SHARD_WEIGHT.sub("", line)
            return re.sub(r"\s+TRESBillingWeights=(?=\s|$)", "", fewer, flags=re.IGNORECASE)
        found = _SETTING.match(line)
        if found is None:
            return line
        name, value = found[2].lower(), found[4]
        if name in HOOKS and value in own_paths:
            return ""
        word = (shards and _LISTS.get(name)) or ("lua" if _SCRIPTS.get(name) in names else None)
        if word is None:
            return line
        words = value.split(",")
        left = [one for one in words if one.strip().lower().removeprefix("job_submit/") != word]
        if left == words:
            return line
        return f"{found[1]}{found[2]}{found[3]}{','.join(left)}{line[found.end() :]}" if left else ""

    return _each_line(text, edited)


def gres_conf_without(text: str) -> str:
    r"""Return gres.conf without its lines with shards.

    >>> gres_conf_without("NodeName=n1 Name=gpu File=/dev/nvidia0\nNodeName=n1 Name=shard Count=39\n")
    'NodeName=n1 Name=gpu File=/dev/nvidia0\n'
    """
    own_paths = re.compile(r"^(?!\s*#).*\bname\s*=\s*shard\b", re.IGNORECASE)
    return _each_line(text, lambda line: "" if own_paths.match(line) else line)


def flags_last(old: str, new: str) -> str:
    r"""Return the new text, with the old PrologFlags as long as anything else changes.

    A slurmd with `PrologFlags=Alloc` waits for slurmctld's message before each job, and drains its node if a slurmctld
    without it sends none (tried on 22.05). So slurmctld must lose shards first and the flag last.

    Args:
        old: slurm.conf, or a file that it includes.
        new: The new text.

    >>> flags_last("a=1\nPrologFlags=Alloc\n", "a=2\n")
    'a=2\nPrologFlags=Alloc\n'
    >>> flags_last("a=2\nPrologFlags=Alloc\n", "a=2\n")
    'a=2\n'
    """
    flags = [line for line in lines_of(old) if re.match(r"\s*prologflags\s*=", line, re.IGNORECASE)]
    rest = [line for line in lines_of(new) if not re.match(r"\s*prologflags\s*=", line, re.IGNORECASE)]
    if not flags or [line for line in lines_of(old) if line not in flags] == rest:
        return new
    lines = lines_of(new)
    at = next((lines.index(line) for line in lines if line not in rest), len(lines))
    return "\n".join(
        [*(line for line in lines[:at]), *flags, *(line for line in lines[at:] if line in rest), ""]
    )


def changed_lines(old: str, new: str) -> list[str]:
    r"""Return removed and added lines, each with its number in the old text.

    Args:
        old: A file's text.
        new: The new text.

    >>> changed_lines("a=1\nb=2,3\n", "a=1\nb=2\n")
    ['line 2: b=2,3  ->  b=2']
    """
    import difflib  # not at the top: `rad` loads quickly

    before, after = lines_of(old), lines_of(new)
    rows = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        olds, news = before[a:b], after[c:d]
        news += ["(goes)"] * (len(olds) - len(news))
        olds += ["(new)"] * (len(news) - len(olds))
        rows += [
            f"line {a + index + 1}: {one}  ->  {other}"
            for index, (one, other) in enumerate(zip(olds, news, strict=True))
        ]
    return rows


def _each_line(text: str, edited: Callable[[str], str]) -> str:
    """Edit each line; continuation lines (after a backslash) stay unchanged; empty results are dropped."""
    return "\n".join(new for line in text.split("\n") if (new := edited(line)) or not line)
