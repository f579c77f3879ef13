from __future__ import annotations

from pathlib import Path

from tools.lint import CHECKERS, Checker


def test_a_checker_sees_every_file_but_what_is_hidden_made_or_left_out(tmp_path: Path) -> None:
    for name in ("a.sh", "lab/b.sh", ".rad/c.sh", "build/d.sh", "gres_conf/e.sh", "f.lua"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    checker = Checker(program="x", package="x", options=(), suffix=".sh", skipped=("gres_conf",))
    assert checker.files(tmp_path) == ["a.sh", "lab/b.sh"]


def test_what_this_checkout_has_to_check_is_found() -> None:
    checkout = Path(__file__).resolve().parents[3]
    files = {checker.suffix: set(checker.files(checkout)) for checker in CHECKERS}
    assert {"lab/matrix.sh", "tests/golden/templates/prolog.sh"} <= files[".sh"]
    assert {"slurm_plugin/lua/rad.lua", "tests/lua/hooks.lua"} <= files[".lua"]
    assert files[".rules.yml"] == {"gres_conf/prometheus/rad.rules.yml"}
    assert files[".rules.test.yml"] == {"tests/data/prometheus/rad.rules.test.yml"}
