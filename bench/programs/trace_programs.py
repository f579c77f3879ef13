"""Trace the programs that measure_programs.py measures: python bench/programs/trace_programs.py LIST --rows FILE.

Each line of LIST runs unchanged as `rad-estimate -- python LINE` does, on the pretended GPU, in a folder of its own
with the data of program_data.py; FILE gets one line of JSON each: the profile, or why there is none. Lines that FILE
has are left out. --python names an environment with the programs' packages, --sources the folder of the clones.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import lines

from gpumemnet.estimators.registry import estimate
from gpumemnet.gpus import gpu_named
from gpumemnet.tracing.saved.record import SavedProfile
from gpumemnet.tracing.script.start import ScriptLimits, Untraced, run
from gpumemnet.units import MIB


def traced(line: lines.Line, options: argparse.Namespace) -> dict[str, Any]:
    """Return a program's row: its profile or why there is none, and its seconds."""
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        work = lines.lay(line, options.sources, options.data, folder)
        environment = {**os.environ, "TMPDIR": str(folder)}
        environment |= lines.variables(line, work, environment)
        environment["PATH"] = f"{options.python.parent}{os.pathsep}{environment['PATH']}"
        os.chdir(work)
        began = time.monotonic()
        found = run(
            line.command(options.python, options.sources),
            environment=environment,
            limits=ScriptLimits(seconds=options.seconds),
        )
        row = {"kind": "traced", "script": line.text, "seconds": round(time.monotonic() - began, 1)}
        os.chdir("/")
    if isinstance(found, Untraced):
        return row | {"why": found.why}
    return row | {"profile": json.loads(found.to_text()) | {"command": list(line.words)}}


def shown(row: dict[str, Any], gpu: str) -> str:
    """Return a row as text."""
    if "why" in row:
        return f"NOT TRACED after {row['seconds']:.0f} s: {row['script']}: {row['why']}"
    saved = SavedProfile.from_text(json.dumps(row["profile"]), path=row["script"])
    profile = next(p for p in saved.profiles if p.batch_size == saved.batch_size)
    estimated = estimate(profile, gpu=gpu_named(gpu))
    sizes = f"{estimated.estimate_bytes / MIB:6.0f} bound {estimated.upper_bytes / MIB:6.0f} MiB"
    return f"{sizes} {row['seconds']:4.0f} s  {row['script'][:120]}"


def main() -> None:
    """Print one line for each program, and how many were traced."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("list", type=Path)
    parser.add_argument("--sources", type=Path, default=Path("sources"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--seconds", type=float, default=300.0, help="a program may take")
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("words", nargs="*", help="only lines that hold one of these")
    options = parser.parse_intermixed_args()
    options.python, options.sources = options.python.absolute(), options.sources.absolute()
    options.data, options.rows = options.data and options.data.absolute(), options.rows.absolute()
    kept = options.rows.read_text(encoding="utf-8").splitlines() if options.rows.exists() else []
    done = {json.loads(row)["script"] for row in kept}
    successes = tried = 0
    for line in lines.read(options.list):
        if line.text in done or (options.words and not any(word in line.text for word in options.words)):
            continue
        row = traced(line, options)
        tried, successes = tried + 1, successes + ("profile" in row)
        with options.rows.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(shown(row, options.gpu), flush=True)
    print(f"{successes} of {tried} traced")


if __name__ == "__main__":
    main()
