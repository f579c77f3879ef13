"""Find the scripts that slurmd starts for a Prolog, TaskProlog or Epilog line of slurm.conf.

A name may be a pattern of glob(7); a relative one is next to slurm.conf; and later versions accept several lines of
Prolog and Epilog (slurm.conf(5)).
"""

from __future__ import annotations

import glob
from collections.abc import Collection
from fnmatch import fnmatch
from pathlib import Path

from slurm_plugin.slurm.files.conf_lines import ConfFile
from slurm_plugin.slurm.versions import Version, traits


def lines_of(conf: ConfFile, hook: str, version: Version | None) -> tuple[str, ...]:
    """Return the values of a hook in slurm.conf, one for each line that counts.

    Args:
        conf: slurm.conf.
        hook: "Prolog", "TaskProlog" or "Epilog".
        version: Version of Slurm here; None if unknown, and then only one line counts.
    """
    name = hook.lower()
    last = conf.settings.get(name, "")
    if version is not None and traits(version).joins_hooks and name != "taskprolog":
        return conf.repeated.get(name, (last,) if last else ())
    return (last,) if last else ()


def scripts_of(names: tuple[str, ...], folder: Path, planned: Collection[Path] = ()) -> tuple[Path, ...]:
    """Return the scripts, whether they exist or not; of a pattern those that exist.

    Args:
        names: Values from `lines_of`.
        folder: Folder of slurm.conf.
        planned: Files that are assumed to exist.

    >>> scripts_of(("/a/b.sh", "c.sh"), Path("/etc/slurm"))
    (PosixPath('/a/b.sh'), PosixPath('/etc/slurm/c.sh'))
    """
    found: list[Path] = []
    for name in names:
        path = folder / name  # an absolute one is unchanged
        if is_pattern(name):
            matching = [
                each for each in planned if each.parent == path.parent and fnmatch(each.name, path.name)
            ]
            found += sorted({*map(Path, glob.glob(str(path))), *matching})
        else:
            found.append(path)
    return tuple(found)


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern for several files.

    >>> is_pattern("/etc/slurm/prolog.d/*"), is_pattern("/etc/rad/prolog.sh")
    (True, False)
    """
    return glob.has_magic(name)
