"""The allocator calls of a training step: each key is freed once, and what should outlive the step does."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest
from paths import SUMMARIES

from gpumemnet.profile.build import with_shapes
from gpumemnet.summaries.graph.build import build
from gpumemnet.summaries.graph.tape import Op, Tape
from gpumemnet.summaries.replay.optimizer_memory import OPTIMIZER_MEMORY
from gpumemnet.summaries.replay.schedule import BORROW, Call, schedule
from gpumemnet.summaries.replay.training_step import replay
from gpumemnet.summaries.texts.read import read
from gpumemnet.training import TrainingSetup

TWO_LAYERS = Tape(
    sizes=[100, 200, 300],
    constants={0},
    parameters=[10, 20],
    ops=[
        Op(inputs=(0,), output=1, saved=(0,), weights=(0,), forward_workspace_bytes=7),
        Op(inputs=(1,), output=2, saved=(1,), weights=(1,), block=1),
    ],
)


def left(calls: Iterable[Call], live: set[int]) -> set[int]:
    """Return the keys that are allocated after these calls; none is freed that is not."""
    for key, n_bytes in calls:
        if n_bytes is None:
            live.remove(key)
        elif key != BORROW:
            live.add(key)
    return live


def test_a_step_in_calls() -> None:
    step = schedule(TWO_LAYERS, checkpointing=False)
    assert step.forward == [(1, 200), (BORROW, 7), (2, 300)]
    again, first, second = 6 + 1, 9, 10  # the gradients of tensor 1 and of the two weights
    assert step.backward == [
        (6 + 2, 300), (again, 200), (second, 20), (6 + 2, None), (1, None), (first, 10), (again, None)
    ]  # fmt: skip
    assert (step.output, step.gradients) == (2, [second, first])
    assert all(key < step.keys - 1 for key, _ in itertools.chain(step.forward, step.backward))


def test_what_is_overwritten_takes_no_block_of_its_own() -> None:
    """A ReLU in place: its result lies where its input lay, and so does its gradient when it is made."""
    relu = Op(inputs=(1,), output=1, saved=(1,))
    tape = Tape(
        sizes=TWO_LAYERS.sizes,
        constants={0},
        parameters=[10, 20],
        ops=[TWO_LAYERS.ops[0], relu, TWO_LAYERS.ops[1]],
    )
    step = schedule(tape, checkpointing=False)
    assert step.forward == [(1, 200), (BORROW, 7), (2, 300)]
    again, first, second = 6 + 1, 9, 10
    assert step.backward == [
        (6 + 2, 300), (again, 200), (second, 20), (6 + 2, None), (BORROW, 200), (1, None), (first, 10),
        (again, None),
    ]  # fmt: skip
    checkpointed = schedule(tape, checkpointing=True)
    assert left([*checkpointed.forward, *checkpointed.backward], set()) == {2, first, second}


def test_a_block_that_is_checkpointed_runs_again() -> None:
    step = schedule(TWO_LAYERS, checkpointing=True)
    assert step.forward == [(1, 200), (BORROW, 7), (2, 300)]
    assert step.backward[0] == (3 + 2, 300)


def test_without_operations_nothing_is_called() -> None:
    step = schedule(Tape(), checkpointing=False)
    assert (step.forward, step.backward, step.gradients) == ([], [], [])
    assert replay(Tape(), OPTIMIZER_MEMORY["adam"]).reserved_bytes == 0


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("path", sorted(SUMMARIES.glob("*.txt")), ids=lambda path: path.stem)
def test_only_output_and_gradients_outlive_a_step(path: Path, checkpointing: bool) -> None:
    setup = TrainingSetup(batch_size=4, gradient_checkpointing=checkpointing)
    tape, _ = build(with_shapes(read(str(path), setup)[0], setup), setup)
    step = schedule(tape, checkpointing=checkpointing)
    assert left(step.backward, left(step.forward, set())) == {step.output, *step.gradients}
