"""Read the lines of programs.txt and settings.txt: how each is started, and the folder it runs in.

A line is `[alone] [cd CLONE &&] [env NAME=VALUE...] [torchrun | -m MODULE] SCRIPT ARGUMENTS`. SCRIPT lies below the
folder of clones, below CLONE if the program wants to stand in it, or in `bench/`. `alone` keeps other programs off the
GPU, as some choose by time.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BENCH = Path(__file__).resolve().parents[1]
_VARIABLE = re.compile(r"[A-Za-z_]\w*=")
_SHOWN_AS = ("data", "datasets", "Datasets")
"""Names by which programs look for their data."""


class ProgramLine(NamedTuple):
    """One program.

    Attributes:
        text: As it stands in the file, without `alone`.
        alone: Whether nothing else may use the GPU meanwhile.
        clone: The repository's folder that it runs in; empty for a folder of its own.
        variables: Of its environment.
        words: After the interpreter.
    """

    text: str
    alone: bool
    clone: str
    variables: dict[str, str]
    words: tuple[str, ...]

    def command(self, python: Path, sources: Path) -> list[str]:
        """Return the words that start it.

        Args:
            python: Of the environment that has what it imports.
            sources: Folder of the clones.
        """
        words = list(self.words)
        if words[0] == "torchrun":
            words[0:1] = ["-m", "torch.distributed.run"]
        for place in (sources, BENCH):
            words = [str(place / w) if "/" in w and (place / w).is_file() else w for w in words]
        return [str(python), *words]


def read(path: Path) -> Iterator[ProgramLine]:
    """Yield the programs of a file.

    Args:
        path: The file; empty lines and those after a # are left out.
    """
    for raw in path.read_text(encoding="utf-8").splitlines():
        text = raw.strip()
        if text and not text.startswith("#"):
            yield parsed(text)


def parsed(text: str) -> ProgramLine:
    """Return a line's program."""
    alone = text.startswith("alone ")
    text = text.removeprefix("alone ")
    place, _, rest = text.rpartition(" && ")
    words = shlex.split(rest)
    variables = {}
    if words[0] == "env":
        while _VARIABLE.match(words[1]):
            name, _, value = words.pop(1).partition("=")
            variables[name] = value
        del words[0]
    return ProgramLine(text, alone, place.removeprefix("cd ").strip(), variables, tuple(words))


def lay(line: ProgramLine, sources: Path, data: Path | None, folder: Path) -> Path:
    """Make the folder that a program runs in: a copy of its clone, with the data next to it and below; return it.

    Args:
        line: The program.
        sources: Folder of the clones.
        data: Folder of the data; None for none.
        folder: An empty one.
    """
    work = folder / "projects" / "work"
    if line.clone:
        shutil.copytree(sources / line.clone, work, symlinks=True)
    else:
        work.mkdir(parents=True)
    home = folder / "home"
    home.mkdir()
    if data:
        for each in data.iterdir():
            _show(each, home if each.name == "home" else work / each.name)
        for name in _SHOWN_AS:
            if (work / name).is_dir():
                for each in data.iterdir():
                    if (work / name / each.name).exists():
                        _show(each, work / name / each.name)
                    elif each.name != "home":
                        (work / name / each.name).symlink_to(work / each.name)
            elif not (work / name).exists():
                (work / name).symlink_to(work)
            for above in (work.parent, folder, home):
                if not (above / name).exists():
                    (above / name).symlink_to(work)
    return work


def variables(line: ProgramLine, work: Path, environment: dict[str, str]) -> dict[str, str]:
    """Return the further variables that a program gets."""
    home = work.parent.parent / "home"
    search = [
        environment.get("PYTHONPATH", ""),
        str(home / "python"),
        str(BENCH / "programs" / "stubs"),
        *([str(work)] if line.clone else []),
    ]
    return {
        "HOME": str(home),
        "HF_HOME": str(home / "hf"),
        "TORCH_HOME": str(home / "torch"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "WANDB_MODE": "offline",
        "PYTHONPATH": os.pathsep.join(filter(None, search)),
        **line.variables,
    }


def _show(each: Path, to: Path) -> None:
    if each.is_dir():
        shutil.copytree(each, to, symlinks=True, copy_function=_link, dirs_exist_ok=True)
    else:
        _link(each, to)


def _link(source: str | Path, to: str | Path) -> None:
    if not os.path.lexists(to):
        os.link(source, to)
