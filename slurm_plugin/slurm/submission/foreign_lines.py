"""#PBS and #BSUB lines of a job script: sbatch reads them, and they override #SBATCH lines.

Source: sbatch(1), --ignore-pbs; which options count was tried with 22.05.8, 24.11.5 and 26.05.5. Only those that RAD's
decisions depend on are read.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

_BSUB = {"-q": "partition", "-n": "ntasks"}
_PER_NODE = {"ppn": "ntasks-per-node", "gpus": "gpus"}
_RESOURCES = {
    "naccelerators": "gpus",
    "mppnodes": "nodelist",
    "mppnppn": "ntasks-per-node",
    "mppwidth": "ntasks",
}


def options_in(line: str) -> dict[str, str]:
    """Return the options of a line by sbatch's long name; nothing if it is neither #PBS nor #BSUB.

    Args:
        line: A comment line of the script.

    >>> options_in("#PBS -q gpu -l nodes=1:ppn=2:gpus=1,walltime=1:00:00")
    {'partition': 'gpu', 'nodes': '1', 'ntasks-per-node': '2', 'ntasks': '2', 'gres': 'gpu:1'}
    >>> options_in("#BSUB -n 2"), options_in("# PBS -q gpu")
    ({'ntasks': '2'}, {})
    """
    mark, _, rest = line.partition(" ")
    if mark not in ("#PBS", "#BSUB"):
        return {}
    try:
        words = shlex.split(rest, comments=True)
    except ValueError:
        return {}
    found: dict[str, str] = {}
    for name, value in _pairs(words):
        if mark == "#BSUB" and name in _BSUB:
            found[_BSUB[name]] = value
        elif mark == "#PBS" and name == "-q":
            found["partition"] = value
        elif mark == "#PBS" and name == "-l":
            found |= _resources(value)
    return found


def _pairs(words: list[str]) -> Iterator[tuple[str, str]]:
    """Return letters and their values, which may be one word or two."""
    left = iter(words)
    for word in left:
        if word.startswith("-") and len(word) > 1:
            yield word[:2], word[2:] or next(left, "")


def _resources(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in text.split(","):
        name, _, value = item.partition("=")
        if name == "nodes":
            found |= _nodes(value)
        elif name in _RESOURCES:
            found |= _option(_RESOURCES[name], value)
    return found


def _nodes(text: str) -> dict[str, str]:
    """Return the options of `nodes=2:ppn=4:gpus=1`."""
    first, *others = text.split(":")
    found = {"nodes": first} if first.isdigit() else {"nodelist": first}
    for item in others:
        name, _, value = item.partition("=")
        if name in _PER_NODE:
            found |= _option(_PER_NODE[name], value)
    each, nodes = found.get("ntasks-per-node", ""), found.get("nodes", "")
    if each.isdigit() and nodes.isdigit():
        gres = {name: found.pop(name) for name in ("gres",) if name in found}
        found |= {"ntasks": str(int(each) * int(nodes)), **gres}
    return found


def _option(name: str, value: str) -> dict[str, str]:
    return {"gres": f"gpu:{value}"} if name == "gpus" else {name: value}
