"""Trace training scripts as they stand: python bench/scripts/traced_scripts.py --python ENVIRONMENT/bin/python.

Runs each script of training_scripts.py on the pretended GPU as `rad-estimate -- python SCRIPT` does, and prints
what it came to, or why not; words choose among them and the further ways to train. The environment named by --python
needs torch, torchvision, timm, transformers, accelerate, lightning and peft; no GPU. `--rows FILE` keeps the profiles,
for bench/scripts/script_errors.py; bench/scripts/measured_scripts.py measures the same scripts on a GPU.
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
from training_scripts import SCRIPTS, WAYS, command

from gpumemnet.estimators.registry import estimate
from gpumemnet.tracing.saved.record import SavedProfile
from gpumemnet.tracing.script.start import ScriptLimits, Untraced, run
from gpumemnet.units import MIB


def traced(line: str, python: Path, seconds: float) -> dict[str, Any]:
    """Trace one script, in a folder of its own; return the row: its profile, or why there is none.

    Args:
        line: Of bench/scripts/training_scripts.py.
        python: Of the environment that has what the script imports.
        seconds: It may take.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        found = run(command(line, python), environment=os.environ, limits=ScriptLimits(seconds=seconds))
        os.chdir("/")
    row = {"kind": "traced", "script": line, "seconds": round(time.monotonic() - began, 1)}
    if isinstance(found, Untraced):
        return row | {"why": found.why}
    without_paths = {"command": line.split()}
    return row | {"profile": json.loads(found.to_text()) | without_paths}


def shown(row: dict[str, Any]) -> str:
    """Return a row as a line."""
    took = f"{row['seconds']:.0f} s"
    if "why" in row:
        return f"{row['script']:46} NOT TRACED after {took}: {row['why']}"
    saved = SavedProfile.from_text(json.dumps(row["profile"]), path=row["script"])
    (profile,) = saved.profiles
    what = f"{saved.model}, batch {profile.batch_size}, {profile.optimizer}, {profile.precision}"
    return f"{row['script']:46} {estimate(profile).estimate_bytes / MIB:6.0f} MiB {took:>6}  {what}"


def main() -> None:
    """Print one line for each script, and how many were traced."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable, help="of an environment with all packages")
    parser.add_argument("--seconds", type=float, default=300.0, help="a script may take")
    parser.add_argument("--rows", type=Path, help="keep the profiles here, one line of JSON each")
    parser.add_argument("scripts", nargs="*", help="only those whose line holds one of these words")
    options = parser.parse_args()
    every = (*SCRIPTS, *WAYS) if options.scripts else SCRIPTS
    chosen = [s for s in every if not options.scripts or any(word in s for word in options.scripts)]
    python, rows = Path(options.python).absolute(), options.rows and options.rows.absolute()
    reported = 0
    for line in chosen:
        row = traced(line, python, options.seconds)
        reported += "profile" in row
        print(shown(row), flush=True)
        if rows:
            with rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    print(f"{reported} of {len(chosen)} traced")


if __name__ == "__main__":
    main()
