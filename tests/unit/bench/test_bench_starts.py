"""Each program of bench/, examples/ and tools/ finds what it imports and reads as it starts; every fuzzer runs.

`make test-train` runs this file, too, for the programs that need torch.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import CHECKOUT

sys.path.insert(0, str(CHECKOUT / "bench" / "faults"))
import fuzz

SAMPLES = CHECKOUT / "bench" / "scripts" / "samples"  # these train as they are loaded
PROGRAMS = sorted(
    path
    for folder in ("bench", "examples", "tools")
    for path in (CHECKOUT / folder).rglob("*.py")
    if SAMPLES not in path.parents and path.name != "__init__.py"
)
NOT_EVERYWHERE = ("numpy", "torch", "torchinfo")
"""What an environment may lack; a program that needs it is not loaded there."""
LOAD = """
import importlib, runpy, sys
from pathlib import Path
path = Path(sys.argv[1])
sys.path[0] = str(next(folder for folder in path.parents if not (folder / "__init__.py").exists()))
if (path.parent / "__init__.py").exists():
    importlib.import_module(".".join(path.relative_to(sys.path[0]).with_suffix("").parts))
else:
    runpy.run_path(str(path), run_name="loaded")
"""


def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    paths = ":".join(str(CHECKOUT / name) for name in ("bench", ".", "tests"))
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_a_program_can_be_loaded(path: Path, tmp_path: Path) -> None:
    said = run("-c", LOAD, str(path), folder=tmp_path)
    missing = re.search(r"ModuleNotFoundError: No module named '(\w+)", said.stderr)
    if missing and missing[1] in NOT_EVERYWHERE:
        pytest.skip(f"needs {missing[1]}")
    assert said.returncode == 0, said.stderr


@pytest.mark.parametrize("target", sorted(fuzz.TARGETS))
def test_a_fuzzer_runs(target: str, tmp_path: Path) -> None:
    program = str(CHECKOUT / "bench" / "faults" / "fuzz.py")
    said = run(program, target, "--inputs", "20", "--workers", "1", folder=tmp_path)
    assert said.returncode == 0 and "20 inputs" in said.stdout, said.stdout + said.stderr
