"""Scripts that end by an exception, wherever it is caught; and those that ask a user."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traced import estimated, saved

pytest.importorskip("torch")

from gpumemnet.tracing.script.failures import READS_INPUT, TOO_LARGE, first_of

LOOP = """
    import sys, torch

    model = torch.nn.Linear(8, 8).cuda()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(steps):
        for _ in range(steps):
            model(torch.rand(4, 8, device="cuda")).sum().backward()
            sgd.step()
        raise ValueError("no such column")

    ENDS
"""
HOOK = """
    sys.excepthook = lambda *_: print("a box")
    train(1)
"""
CAUGHT = """
    try:
        train(1)
    except Exception as error:
        print("something went wrong; set SCRIPT_FULL_ERROR=1")
        sys.exit(1)
"""


@pytest.mark.parametrize("ends", [HOOK, CAUGHT], ids=["a hook of its own", "caught, and left by sys.exit"])
def test_the_exception_is_reported_even_if_it_is_caught(tmp_path: Path, ends: str) -> None:
    done = estimated(tmp_path, LOOP.replace("ENDS", ends.strip()))
    reported = json.loads(done.stdout)["warnings"][0]
    assert reported == "the script could not be traced: ValueError: no such column, at train.py:11"


def test_a_failure_after_the_steps_is_reported_next_to_the_trace(tmp_path: Path) -> None:
    done, found = saved(tmp_path, LOOP.replace("ENDS", "train(2)"))
    assert found.profiles[0].parameters == 72
    assert json.loads(done.stdout)["warnings"] == [
        "traced until the script failed after 2 steps: ValueError: no such column, at train.py:11"
    ]


@pytest.mark.parametrize("first", ["import os", "import torch"], ids=["before torch", "with torch"])
def test_a_script_that_waits_for_input_is_reported(tmp_path: Path, first: str) -> None:
    done = estimated(tmp_path, f"{first}\nname = input('which run? ')\nimport torch\n")
    assert (done.returncode, done.stderr) == (
        2,
        f"rad-estimate: the script could not be traced: {READS_INPUT}\n",
    )


BY_PYTHON = """
    import torch

    with open("data.bin", "wb") as file:
        for _ in range(300):
            file.write(bytes(1 << 20))
"""
BY_NUMPY = """
    import numpy, torch

    numpy.save("data.npy", numpy.zeros(300 << 17))
"""


@pytest.mark.parametrize(("source", "line"), [(BY_PYTHON, 6), (BY_NUMPY, 4)], ids=["Python", "NumPy"])
def test_a_file_beyond_the_limit_is_named_with_its_line(tmp_path: Path, source: str, line: int) -> None:
    done = estimated(tmp_path, source)
    assert done.stderr == f"rad-estimate: the script could not be traced: {TOO_LARGE}, at train.py:{line}\n"


def test_the_first_of_a_chain_of_exceptions_is_reported_and_a_ring_has_an_end() -> None:
    first, second, third = KeyError("a"), ValueError("b"), RuntimeError("c")
    second.__cause__, third.__cause__ = first, second
    assert first_of(third) is first
    first.__cause__ = third  # a library may raise again what it has caught before
    assert first_of(third) is first
    alone = ValueError("d")
    alone.__cause__ = alone
    assert first_of(alone) is alone


def task_variables(folder: Path, source: str) -> str:
    answer = json.loads(estimated(folder, source).stdout)
    lines = answer["error"]["lines"] if "error" in answer else answer["warnings"]
    return str(lines[0])


SPAWNED = """
    import torch, torch.multiprocessing as mp

    def work(rank):
        model = torch.nn.Linear(10, 10).cuda()
        model(torch.randn(4, 10).cuda()).sum().backward()
        torch.zeros(3, 2).t().view(-1)

    if __name__ == "__main__":
        mp.spawn(work, nprocs=1)
"""
ASSERTED = """
    import torch

    model = torch.nn.Linear(8, 8).cuda()
    classes = 8
    assert classes == 10
"""
UNUSED = """
    import json
    import torch

    def read(text):
        return json.loads(text)

    read("")
"""


def test_what_a_spawned_process_ended_by_is_reported_with_its_place(tmp_path: Path) -> None:
    reported = task_variables(tmp_path, SPAWNED)
    assert "a process that it started ended with " in reported and "view" in reported
    assert reported.endswith(", at train.py:7")


def test_an_assertion_without_words_is_recognised_by_its_line(tmp_path: Path) -> None:
    assert "AssertionError: assert classes == 10, at train.py:6" in task_variables(tmp_path, ASSERTED)


def test_a_script_that_fails_before_it_uses_the_gpu_is_not_said_to_be_untraceable(tmp_path: Path) -> None:
    done = estimated(tmp_path, UNUSED)
    assert done.returncode == 2
    assert done.stderr == (
        "rad-estimate: your script ended before it used the GPU: JSONDecodeError: Expecting value: line 1 column 1 "
        "(char 0), at train.py:6\n"
    )
