"""`rad calibrate --deep`, with programs that tell what an H200 was recorded to do instead of measuring."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
import recorded
from click.testing import CliRunner

from gpumemnet.calibration.fit.parts import PARTS
from gpumemnet.gpu_memory.rules.numbers import TABLE, read_site_table, read_table
from slurm_plugin.admin.calibrate import rules
from slurm_plugin.admin.calibrate.base import PROGRAMS
from slurm_plugin.admin.cli import main
from slurm_plugin.core.errors import EstimateError

TODAY = date(2026, 11, 22)
MIB = 1 << 20
REPORTED = {
    "device": {"gpu": "NVIDIA H200", "torch": "2.11", "cuda": "13.0", "cudnn": "9.19", "driver": "580.159",
               "memory_bytes": 144384 * MIB, "multiprocessors": 132, "threads": 2048},
    "conv": {"base_bytes": 760 * MIB},
    "dense": {"base_bytes": 742 * MIB},
    "convs_only": {"base_bytes": 632 * MIB},
    "segments": {"segments": [[MIB, 2 * MIB], [2 * MIB, 20 * MIB], [12 * MIB, 12 * MIB], [14 * MIB, 14 * MIB]]},
    "cublas": {"handle_bytes": 32 * MIB, "lt_bytes": MIB, "both_threads_bytes": 64 * MIB},
    "mps": {"server_bytes": 66 * MIB, "client_bytes": 532 * MIB},
}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of the names that measure; they print the requested part from a file next to them."""
    folder = tmp_path_factory.mktemp("programs")
    convolutions = {str(seed): recorded.convolutions(recorded.sweeps()[seed]) for seed in range(2)}
    (folder / "reported.json").write_text(json.dumps(REPORTED | convolutions))
    for name in {part.program for part in PARTS}:
        (folder / name).write_text(
            "import json, sys\nfrom pathlib import Path\n"
            "reported = json.loads(Path(__file__).with_name('reported.json').read_text())\n"
            "if sys.argv[1] not in reported: sys.exit('this part fails')\n"
            "print('a warning of torch')\nprint(json.dumps(reported[sys.argv[1]]))\n"
        )
    return folder


def measure(out: Path, programs: Path) -> list[str]:
    said: list[str] = []
    rules.measure(sys.executable, {}, out=out, today=TODAY, progress=said.append, programs=programs)
    return said


def test_an_h200_gets_the_rows_that_we_ship(tmp_path: Path, programs: Path) -> None:
    out = tmp_path / "rules.csv"
    said = measure(out, programs)
    shipped = {(rule.library, rule.name): rule for rule in read_table(TABLE) if rule.gpu in ("h200", "*")}
    found = read_site_table(out)
    assert len(found) > 20
    assert {(r.library, r.name): r.value for r in found} == {
        (r.library, r.name): shipped[r.library, r.name].value for r in found
    }
    assert {(r.status, r.found_by) for r in found} == {("measured", "rad calibrate --deep, 2026-11-22")}
    # Two of the four runs of convolutions fail here; that costs no row.
    assert [line for line in said if "this part fails" in line] and out.read_text().count("\ncudnn,") > 3


def test_a_second_gpu_is_added(tmp_path: Path, programs: Path) -> None:
    out = tmp_path / "rules.csv"
    out.write_text(TABLE.read_text().splitlines()[0] + "\nprocess,x,l4,base,300,MiB,measured,by hand,base\n")
    measure(out, programs)
    assert {rule.gpu for rule in read_site_table(out)} == {"l4", "h200"}


@pytest.mark.parametrize("text", ["nonsense\n", "a,b\n1,2\n"])
def test_a_table_that_is_not_rads_is_left_alone(tmp_path: Path, programs: Path, text: str) -> None:
    out = tmp_path / "rules.csv"
    out.write_text(text)
    with pytest.raises(EstimateError, match="columns must be"):
        measure(out, programs)
    assert out.read_text() == text


def test_trouble_comes_before_the_minutes(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(EstimateError, match="nowhere"):
        rules.measure("/no/python", {}, out=tmp_path / "nowhere" / "x", today=TODAY, progress=said.append)
    assert not said
    with pytest.raises(EstimateError, match="--python must name"):
        rules.measure("/no/python", {}, out=tmp_path / "x", today=TODAY, progress=said.append)
    assert len(said) == 1
    # An empty table would be refused by the next try, and estimates would say so each time.
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_says_what_and_how_long(tmp_path: Path) -> None:
    out = tmp_path / "rules.csv"
    done = CliRunner().invoke(main, ["calibrate", "--deep", "--dry-run", "--out", str(out)])
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert len(lines) == len(PARTS) + 1 and all(f"{part.takes_s} s" in done.output for part in PARTS)
    assert str(sum(part.takes_s for part in PARTS)) in lines[-1] and not out.exists()


def test_a_dry_run_of_the_short_way_is_refused() -> None:
    done = CliRunner().invoke(main, ["calibrate", "--dry-run"])
    assert done.exit_code == 2


def test_what_was_found_stands_next_to_what_counted(tmp_path: Path, programs: Path) -> None:
    out = tmp_path / "rules.csv"
    table = rules.measure(
        sys.executable, {}, out=out, today=TODAY, progress=lambda line: None, programs=programs
    )
    text = rules.as_text(table, out)
    assert "conv_base" in text and f"{760 * MIB}  (was {760 * MIB})" in text and str(out) in text


def test_a_workspace_that_does_not_stay_costs_no_other_number(tmp_path: Path, programs: Path) -> None:
    folder = tmp_path / "programs"
    folder.mkdir()
    for path in programs.iterdir():
        (folder / path.name).write_text(path.read_text())
    reported = json.loads((programs / "reported.json").read_text())
    (folder / "reported.json").write_text(
        json.dumps(reported | {"cublas": reported["cublas"] | {"lt_bytes": 0}})
    )
    out = tmp_path / "rules.csv"
    measure(out, folder)
    names = {rule.name for rule in read_site_table(out) if rule.library == "cublas"}
    assert names == {"handle_workspace", "workspaces"}


@pytest.mark.parametrize("name", sorted({part.program for part in PARTS}))
def test_what_measures_is_read_by_the_pythons_of_users(name: str) -> None:
    ast.parse((PROGRAMS / name).read_text(), feature_version=(3, 9))


def test_mps_ends_after_its_client(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        "import os\nfrom pathlib import Path\n"
        "class cuda:\n"
        "    memory_reserved = staticmethod(lambda: 2 << 20)\n"
        "    synchronize = staticmethod(lambda: Path(os.environ['FAKE'], 'client').write_text(str(os.getpid())))\n"
        "def empty(size, device): pass\n"
    )
    control = """if [ "${1-}" = -d ]; then exit 0; fi
read -r line
case $line in
    get_server_list) echo 4242 ;;
    quit*) kill -0 "$(cat "$FAKE/client")" 2>/dev/null && echo alive >"$FAKE/quit" || echo gone >"$FAKE/quit" ;;
esac"""
    for program, does in {
        "nvidia-cuda-mps-control": control,
        "nvidia-smi": 'echo "4242, 66"; echo "$(cat "$FAKE/client"), 534"',
    }.items():
        (tmp_path / program).write_text(f"#!/bin/bash\n{does}\n")
        (tmp_path / program).chmod(0o755)
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "rules.py"), "mps"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": str(tmp_path), "FAKE": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"server_bytes": 66 * MIB, "client_bytes": 532 * MIB}
    assert (tmp_path / "quit").read_text() == "gone\n"
