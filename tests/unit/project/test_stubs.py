"""The stubs in stubs/ say what the installed packages really have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import CHECKOUT

STUBS = sorted(path.stem for path in (CHECKOUT / "stubs").glob("*.pyi"))


@pytest.mark.slow
@pytest.mark.parametrize("module", STUBS)
def test_a_stub_agrees_with_its_module(module: str, tmp_path: Path) -> None:
    """Names, parameters and kinds, by mypy's own comparison; what a stub leaves out is not used by us."""
    pytest.importorskip(module)
    pytest.importorskip("mypy.stubtest")
    done = subprocess.run(
        [sys.executable, "-I", "-m", "mypy.stubtest", module, "--ignore-missing-stub", "--concise"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(CHECKOUT / "stubs")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
