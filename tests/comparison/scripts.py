"""Cells as files and command lines."""

from __future__ import annotations

from pathlib import Path

from comparison.catalogue import Cell

FORM_S, QUEUED_FORM_S = 25, 90
"""How long a form may take; one that waits in the queue has more."""

_BODY = """\
cell={folder}
W=$cell/${{SLURM_ARRAY_TASK_ID:-one}}.${{SLURM_RESTART_COUNT:-0}}
export W
mkdir -p "$W"
form() {{
    P="{probe} $W/$1" timeout -k 5 "$2" bash "{forms}/$1" >"$W/$1.out" 2>"$W/$1.err"
    echo $? >"$W/$1.rc"
}}
{calls}
exit {status}
"""


def write_forms(folder: Path, cells: list[Cell]) -> None:
    """Write each form's text once."""
    folder.mkdir()
    for form in {form.name: form for cell in cells for form in cell.forms}.values():
        (folder / form.name).write_text(f"{form.text}\n")


def write_cell(work: Path, cell: Cell) -> None:
    """Write a cell's scripts into a folder of its own, to which any user may write."""
    folder = work / "cells" / cell.name
    for each in (folder, folder / "elsewhere"):
        each.mkdir(parents=True)
        each.chmod(0o777)
    calls = "\n".join(f"form {form.name} {_limit_s(form.text)}" for form in cell.forms)
    body = _BODY.format(
        folder=folder,
        probe=work / "probe.sh",
        forms=work / "forms",
        calls=calls,
        status=cell.head.tags.get("exit", "0"),
    )
    (folder / "body").write_text(body)
    (folder / "job").write_text(_script(cell, body, folder))


def argv_of(work: Path, cell: Cell) -> list[str]:
    """Return the command that submits a cell; "-" at the end for a script on standard input."""
    folder = work / "cells" / cell.name
    words = [word.replace("{folder}", str(folder)) for word in cell.head.words()]
    if cell.entrance == "srun":
        return ["srun", *_each_component(words, [str(work / "probe.sh"), f"{folder}/direct"])]
    if cell.entrance == "salloc":
        return ["salloc", *words, "bash", str(folder / "body")]
    if "wrap" in cell.head.tags:
        return ["sbatch", *words, "--wrap", f"bash {folder}/body"]
    return ["sbatch", "-"] if "stdin" in cell.head.tags else ["sbatch", "job"]


def _each_component(words: list[str], command: list[str]) -> list[str]:
    if ":" not in words:
        return [*words, *command]
    cut = words.index(":")
    return [*words[:cut], *command, ":", *words[cut + 1 :], *command]


def _script(cell: Cell, body: str, folder: Path) -> str:
    lines = ["#SBATCH " + line.replace("{folder}", str(folder)) + "\n" for line in cell.head.options]
    if "python" in cell.head.tags:
        text = f"import subprocess, sys\nsys.exit(subprocess.call(['bash', {str(folder / 'body')!r}]))\n"
        return "".join(["#!/usr/bin/env python3\n", *lines, text])
    shell = "#!/bin/sh\n" if "sh" in cell.head.tags else "#!/bin/bash\n"
    return "".join([shell, *lines, "\n", body])


def _limit_s(text: str) -> int:
    return QUEUED_FORM_S if "sbatch" in text or "salloc" in text else FORM_S
