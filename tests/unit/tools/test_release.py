from __future__ import annotations

import sys
from pathlib import Path

from tools.release import PYTHONS, pythons


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_a_python_counts_only_if_it_runs(tmp_path: Path) -> None:
    script(tmp_path / "bin" / "python3.12", "#!/bin/sh\nexit 127\n")  # as pyenv's shims
    script(
        tmp_path / "versions" / "3.14.1" / "bin" / "python3.14", f'#!/bin/sh\nexec {sys.executable} "$@"\n'
    )
    found = dict(pythons({"PATH": str(tmp_path / "bin"), "PYENV_ROOT": str(tmp_path)}))
    assert tuple(found) == PYTHONS
    assert found["3.14"] == str(tmp_path / "versions" / "3.14.1" / "bin" / "python3.14")
    assert found["3.12"] != str(tmp_path / "bin" / "python3.12")
