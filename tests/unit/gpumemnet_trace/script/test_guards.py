"""Checks of values, which pass in a run without faults: the trace takes the side that goes on, and names the line."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from traced import saved

pytest.importorskip("torch")

from gpumemnet.tracing.trace.recording import lines

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
    if kind == "one" and not perfect:
        raise ValueError
    if broken:
        return None
    share = right / count if count else 0.0
    words = "same" if same else "other"
"""


def test_the_side_that_goes_on_is_found_for_each_line(tmp_path: Path) -> None:
    source = textwrap.dedent(LINES).strip()
    (tmp_path / "checks.py").write_text(source)
    found = lines.of_file(str(tmp_path / "checks.py")).passes
    assert {source.splitlines()[number - 1].strip(): value for number, value in found.items()} == {
        "assert good": True,
        'assert not bad, "words"': False,
        "if bad:": False,
        "if not (good and fine):": True,
        "if good:": True,
        "if bad or worse:": False,
        "not good": True,
        "or bad": False,
        'if kind == "one" and not perfect:': True,
        "if broken:": False,
        "share = right / count if count else 0.0": True,
    }


@pytest.mark.parametrize("source", ["", "not Python ("])
def test_a_file_that_cannot_be_read_has_no_checks(tmp_path: Path, source: str) -> None:
    (tmp_path / "checks.py").write_text(source)
    assert lines.of_file(str(tmp_path / "checks.py")) == lines.Lines()


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
        "a branch that depends on a tensor's values was taken as false at train.py:9, train.py:11, train.py:15, "
        "train.py:17 and 1 more, as the other way raises or skips",
        "a branch that depends on a tensor's values was taken as true at train.py:10, train.py:13, as the other way "
        "raises or skips",
    ]
    assert found.profiles[0].doubt_bytes == 0  # a check that passes is no guess


OFTEN = """
    import torch
    from torch import nn

    model = nn.Linear(64, 10).cuda()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    times = torch.linspace(0, 1, 8, device="cuda")
    for _ in range(4):
        for n in range(300):  # as a solver of differential equations checks each of its steps
            assert (times[0] <= times[1]) & (times[1] <= times[2]), "not in order"
        model(torch.rand(8, 64, device="cuda")).sum().backward()
        sgd.step()
"""


def test_a_check_passes_however_often_it_runs(tmp_path: Path) -> None:
    _, found = saved(tmp_path, OFTEN)
    assert found.profiles[0].doubt_bytes == 0


LOOPS = """
    import sys
    import torch
    from torch import nn

    kind, ends = sys.argv[1], torch.rand(8, device="cuda")
    model = nn.Linear(64, 10).cuda()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)

    def close(value):
        return bool((value > 0).all())

    def loss_of(rows, labels):
        if kind != "none" and (labels > 0).sum().item() == 0:
            return None
        return nn.functional.cross_entropy(model(rows), labels)

    def rounds(value):
        made = 0
        if kind == "norm":
            while value.norm() > 1e-3: made += 1
        if kind == "not all":
            while not (value > 0).all(): made += 1
        if kind == "item":
            while value.max().item() > 0.5: made += 1
        if kind == "integer":
            while value.argmax().item() != 3: made += 1
        if kind == "break":
            while True:
                made += 1
                if value.sum() < 1: break
        if kind == "for":
            for _ in range(9):
                if value.sum() < 1: break
                made += 1
        if kind == "called":
            while close(value): made += 1
        return made

    for step in range(6):
        rows, labels = torch.rand(8, 64, device="cuda"), torch.zeros(8, device="cuda").long()
        before = rounds(ends)
        assert before > 1 and (step == 0 or last == before), before
        last = before
        sgd.zero_grad()
        loss_of(rows, labels).backward()
        sgd.step()
"""


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("norm", 21),
        ("not all", 23),
        ("item", 25),
        ("integer", 27),
        ("break", 31),
        ("for", 14),
        ("called", 11),
    ],
)
def test_a_loop_that_ends_on_a_value_makes_some_rounds_and_ends(tmp_path: Path, kind: str, line: int) -> None:
    done, found = saved(tmp_path, LOOPS, kind)
    guesses = [each for each in json.loads(done.stdout)["warnings"] if "values" in each]
    assert any(f"train.py:{line}" in each for each in guesses), guesses
    assert any("train.py:14" in each and "taken as false" in each for each in guesses), guesses
    assert (found.profiles[0].doubt_bytes > 0) == (kind != "for")


TRAINS = """
    import torch
    from torch import nn

    model = nn.Linear(64, 10).cuda()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.ones(1, device="cuda")
    while loss > 1e-3:
        rows = torch.rand(8, 64, device="cuda")
        if (rows > 2).any():
            rows = rows * 2
        loss = model(rows).pow(2).mean()
        sgd.zero_grad()
        loss.backward()
        sgd.step()
"""


def test_a_training_loop_that_ends_on_its_loss_is_traced_and_its_branch_named(tmp_path: Path) -> None:
    done, _ = saved(tmp_path, TRAINS)
    warnings = json.loads(done.stdout)["warnings"]
    assert "a branch that depends on a tensor's values was taken as true at train.py:10" in warnings
    assert any("MiB higher for branches whose side was guessed" in each for each in warnings)


def test_of_two_comparisons_in_a_line_none_is_known_to_ask(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(
        "assert a.item() == 0.0 and b.sum() > 1\nassert a.item() == 0.0\nassert a\n"
    )
    found = lines.of_file(str(tmp_path / "checks.py"))
    assert found.several == {1}
    assert [found.compared[line] is not None for line in (1, 2, 3)] == [False, True, False]
