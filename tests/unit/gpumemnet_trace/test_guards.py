"""Checks of values, which pass in a run without faults: the trace takes the side that goes on, and names the line."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from traced import saved

pytest.importorskip("torch")

from gpumemnet.tracing.trace.recording import guards

LINES = """
    assert good
    assert not bad, "words"
    if bad:
        print("bad"); raise ValueError
    if not (good and fine):
        sys.exit(1)
    if good:
        step()
    else:
        raise ValueError
    for _ in range(2):
        if bad or worse:
            continue
    if open:
        step()
    if either:
        raise ValueError
    else:
        raise KeyError
    if good and not bad:
        os._exit(1)
    if (
        not good
        or bad
    ):
        raise ValueError
"""


def test_the_side_that_goes_on_is_found_for_each_line(tmp_path: Path) -> None:
    source = textwrap.dedent(LINES).strip()
    (tmp_path / "checks.py").write_text(source)
    found = guards._checks(str(tmp_path / "checks.py"))
    lines = {number: source.splitlines()[number - 1].strip() for number in found}
    assert {text: found[number] for number, text in lines.items()} == {
        "assert good": True,
        'assert not bad, "words"': False,
        "if bad:": False,
        "if not (good and fine):": True,
        "if good:": True,
        "if bad or worse:": False,
        "not good": True,
        "or bad": False,
    }


@pytest.mark.parametrize("source", ["", "not Python ("])
def test_a_file_that_cannot_be_read_has_no_checks(tmp_path: Path, source: str) -> None:
    (tmp_path / "checks.py").write_text(source)
    assert guards._checks(str(tmp_path / "checks.py")) == {}


SCRIPT = """
    import torch
    from torch import nn

    model = nn.Linear(64, 10).cuda()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        rows, labels = torch.rand(8, 64, device="cuda"), torch.zeros(8, device="cuda").long()
        assert not (labels < 0).any(), "a negative label"
        assert all((part >= 0).all() for part in (rows, labels))
        if (rows.std(0) == 0).any():
            raise ValueError("no spread")
        if not torch.allclose(rows, rows) or not torch.equal(rows, rows):
            raise ValueError("changed")
        if torch.allclose(rows, 2 * rows):
            raise ValueError("all zero")
        if (labels == -100).all():
            continue
        covariance = rows.T @ rows + torch.eye(64, device="cuda")
        factor, info = torch.linalg.cholesky_ex(covariance)
        if torch.any(info):
            raise ValueError("not positive definite")
        rows = rows @ torch.linalg.cholesky(covariance) @ torch.linalg.inv(covariance)
        sgd.zero_grad()
        nn.functional.cross_entropy(model(rows), labels).backward()
        sgd.step()
"""


def test_a_script_that_checks_its_values_is_traced(tmp_path: Path) -> None:
    done, found = saved(tmp_path, SCRIPT)
    assert found.inputs == ("8x64:float32",)
    guessed = [each for each in json.loads(done.stdout)["warnings"] if each.startswith("a branch")]
    assert guessed == [
        "a branch that depends on a tensor's values was taken as true at train.py:10, as the other way raises or skips",
        "a branch that depends on a tensor's values was taken as false at train.py:9, train.py:11, train.py:17, "
        "train.py:21, as the other way raises or skips",
    ]
