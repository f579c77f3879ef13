"""`rad calibrate`, with a stand-in for the program that needs torch and a GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from slurm_plugin.admin.calibrate.base import as_text, measure
from slurm_plugin.admin.cli import main
from slurm_plugin.core.config.load import Config, parse_config
from slurm_plugin.core.errors import EstimateError
from slurm_plugin.core.records.submission import UserDirectives
from slurm_plugin.core.units import MIB
from slurm_plugin.directives import directives_of, profile_of, user_directives_of
from slurm_plugin.estimate import Estimator

EXAMPLES = Path(__file__).resolve().parents[5] / "examples"


def program(folder: Path, text: str) -> Path:
    path = folder / "measure.py"
    path.write_text(text)
    return path


def test_both_kinds_are_measured_and_said(tmp_path: Path):
    stand_in = program(
        tmp_path,
        "import json, sys\n"
        "print('a warning of torch')\n"
        "base = {'conv': 760, 'dense': 742}[sys.argv[1]] << 20\n"
        "print(json.dumps({'base_bytes': base, 'gpu': 'NVIDIA H200', 'torch': '2.11'}))\n".replace(
            "\\\n", "\n"
        ),
    )
    text = as_text(measure(sys.executable, {}, program=stand_in))
    assert text.splitlines()[1:] == ["conv_base_mib = 760", "base_mib = 742"]
    assert "NVIDIA H200, PyTorch 2.11" in text


@pytest.mark.parametrize("text", ["print('hello')", "raise SystemExit('no GPU here')", "print('{}')", ""])
def test_trouble_is_one_line(tmp_path: Path, text: str):
    with pytest.raises(EstimateError):
        measure(sys.executable, {}, program=program(tmp_path, text))


def test_torch_finds_the_standard_library_and_not_our_modules_of_the_same_names(tmp_path: Path):
    (tmp_path / "torch.py").write_text(
        "import cProfile, profile, trace\n"
        "assert profile.run and trace.Trace\n"
        "raise SystemExit('torch has what it needs')\n"
    )
    with pytest.raises(EstimateError, match="torch has what it needs"):
        measure(sys.executable, {"PYTHONPATH": str(tmp_path)})


def test_without_torch_the_command_says_what_it_needs():
    result = CliRunner().invoke(main, ["calibrate", "--python", "/nowhere/python"])
    assert (result.exit_code, len(result.output.splitlines())) == (2, 1)
    assert "--python must name a Python with torch" in result.output


def estimate_with(config: Config) -> int:
    directives = directives_of("#RAD model=models/resnet18_torchinfo.txt batch_size=64\n", "job.sh", "")
    assert directives is not None
    read = profile_of(directives, (EXAMPLES,))
    assert read is not None
    stated = UserDirectives(profile=read[0])
    assert user_directives_of(None, None) == UserDirectives()
    estimate = Estimator.from_config(config).estimate(stated)
    assert estimate is not None
    return estimate.estimate_bytes


def test_a_measured_base_is_used():
    usual = estimate_with(Config())
    more = estimate_with(parse_config({"conv_base_mib": 1060}, origin="rad.toml"))
    other = estimate_with(parse_config({"base_mib": 1060}, origin="rad.toml"))
    assert more - usual == pytest.approx(300 * MIB, rel=0.2)
    assert other == usual
