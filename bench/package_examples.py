"""Packages' own training examples, traced unmodified: python bench/package_examples.py SOURCES --python PYTHON.

SOURCES holds clones of the projects, by the names of their repositories: `vision`, `pytorch-image-models`,
`accelerate`, `examples` (PyTorch's) and `pytorch-lightning`; PYTHON is of an environment with their packages. Each line
of package_examples.txt runs as `rad-estimate -- python LINE` does, on the pretended GPU, in a folder of its own that
holds the data sets of example_data.py. Printed are what it came to, or why not, and which files it left; words choose
among the lines. Nothing is downloaded: what an example takes from a hub (accelerate's text examples take BERT's weights
and a metric) lies in DATA/home, a home folder with its caches, or its line says why it is not traced.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import example_data
from traced_scripts import shown

from gpumemnet.tracing.script.start import Limits, Untraced, run

LINES = Path(__file__).parent / "package_examples.txt"
"""As the projects' READMEs start them, with smaller batches and the paths of bench/example_data.py."""

_VARIABLE = re.compile(r"[A-Za-z_]\w*=")


def command(line: str, sources: Path, python: Path) -> list[str]:
    """Return the words that start one of the lines.

    Args:
        line: `SCRIPT ...`, `torchrun SCRIPT ...` or another PROGRAM of the environment, behind `cd CLONE && ` where it
            stands in a clone's folder; and behind `env NAME=VALUE` where variables tell it its folders.
        sources: Folder of the projects' clones.
        python: Of the environment.
    """
    words = shlex.split(line.rpartition("&& ")[2])
    first = next(n for n, word in enumerate(words) if word != "env" and not _VARIABLE.match(word))
    variables, words = words[:first], words[first:]
    if words[0] == "torchrun":
        words[0:1] = ["-m", "torch.distributed.run"]
    elif (python.parent / words[0]).is_file():
        words[0] = str(python.parent / words[0])
    return [*variables, str(python), *(str(sources / w) if (sources / w).is_file() else w for w in words)]


def link(source: str, to: str) -> None:
    """Link a file, or leave the one that is there.

    Args:
        source: The file.
        to: Its name in the folder that an example runs in.
    """
    if not os.path.exists(to):
        os.link(source, to)


def lay(data: Path, clone: Path | None, work: Path) -> None:
    """Make the folder that an example runs in: a clone, if it needs to stand in one, and the data sets.

    Args:
        data: Folder of the data sets; they lie in the example's folder and in its `data` and `datasets`.
        clone: Of the project; None to stand outside.
        work: The folder.
    """
    if clone:
        shutil.copytree(clone, work, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    held = {"symlinks": True, "copy_function": link, "dirs_exist_ok": True}
    shutil.copytree(data, work, ignore=shutil.ignore_patterns("home"), **held)
    for name in ("data", "datasets", "Datasets"):
        if (work / name).is_dir():
            shutil.copytree(data, work / name, ignore=shutil.ignore_patterns("home"), **held)
        else:
            (work / name).symlink_to(work)


def files_below(folder: Path) -> set[str]:
    """Return the files below a folder.

    Args:
        folder: That a script ran in.
    """
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def traced(line: str, options: argparse.Namespace, data: Path) -> dict[str, Any]:
    """Trace one example; return the row: its profile or why there is none, its seconds and what it left.

    Args:
        line: Of LINES.
        options: Of the command line.
        data: Folder of the data sets.
    """
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "projects" / "work"
        clone = re.match(r"cd (\S+) && ", line)
        lay(data, options.sources / clone[1] if clone else None, work)
        for name in ("data", "datasets"):
            (work.parent / name).symlink_to(work)
            (work.parent.parent / name).symlink_to(work)
        home = Path(folder) / "home"
        shutil.copytree(data / "home", home, symlinks=True, copy_function=os.link) if (
            data / "home"
        ).exists() else home.mkdir()
        before = files_below(Path(folder))
        environment = {
            **os.environ, "HOME": str(home), "HF_HUB_OFFLINE": "1", "HF_HOME": str(home / "hf"), "TMPDIR": folder,
            "HF_EVALUATE_OFFLINE": "1", "WANDB_MODE": "offline",
            "PATH": f"{options.python.parent}{os.pathsep}{os.environ['PATH']}",
        }  # fmt: skip
        search = [home / "python", *([options.extra] if options.extra else []), *([work] if clone else [])]
        environment["PYTHONPATH"] = os.pathsep.join(str(folder) for folder in search)
        os.chdir(work)
        began = time.monotonic()
        found = run(
            command(line, options.sources, options.python),
            environment=environment,
            limits=Limits(seconds=options.seconds),
        )
        seconds = round(time.monotonic() - began, 1)
        os.chdir("/")
        left = sorted(files_below(Path(folder)) - before)
    row = {"script": line, "seconds": seconds, "left": left}
    return row | (
        {"why": found.why, "text": len(found.text)}
        if isinstance(found, Untraced)
        else {"profile": json.loads(found.to_text())}
    )


def main() -> None:
    """Print one line for each example, and how many were traced."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", type=Path, help="folder of the projects' clones")
    parser.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="of an environment with all packages"
    )
    parser.add_argument("--extra", type=Path, help="a folder with further packages (pip install --target)")
    parser.add_argument("--lines", type=Path, default=LINES, help="the examples, one on a line")
    parser.add_argument("--data", type=Path, help="the data sets, made there if it does not exist")
    parser.add_argument("--seconds", type=float, default=300.0, help="an example may take")
    parser.add_argument("--rows", type=Path, help="keep the rows here, one line of JSON each")
    parser.add_argument("words", nargs="*", help="only lines that hold one of these")
    options = parser.parse_intermixed_args()
    options.sources, options.python = options.sources.absolute(), options.python.absolute()
    rows = options.rows and options.rows.absolute()
    data = (options.data or Path(tempfile.mkdtemp())).absolute()
    if not data.exists() or not any(data.iterdir()):
        example_data.make(data)
    told = 0
    lines = options.lines.read_text(encoding="utf-8").splitlines()
    chosen = [line for line in lines if not options.words or any(word in line for word in options.words)]
    for line in chosen:
        row = traced(line, options, data)
        told += "profile" in row
        print(shown(row), *(f"\n    left {name}" for name in row["left"]), sep="", flush=True)
        if rows:
            with rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    print(f"{told} of {len(chosen)} traced")


if __name__ == "__main__":
    main()
