"""Memory over one training step in the steady state: tensor bytes after each allocator call."""

from __future__ import annotations

from collections.abc import Iterable

from gpumemnet.gpu_memory.allocator.timeline import Timeline
from gpumemnet.summaries.graph.tape import Tape
from gpumemnet.summaries.replay.optimizer_memory import OptimizerMemory
from gpumemnet.summaries.replay.schedule import Call, schedule


def timeline(tape: Tape, optimizer: OptimizerMemory, *, checkpointing: bool) -> Timeline:
    """Run one step of a tape, after the first step has made the optimizer's states.

    Args:
        tape: The forward pass.
        optimizer: States and temporaries.
        checkpointing: Whether blocks keep only their inputs and are recomputed in backward.
    """
    constants = sum(tape.sizes[number] for number in tape.constants)
    weights = sum(tape.parameters) + sum(tape.frozen) + constants
    kept_bytes = weights + optimizer.state_bytes(tape.parameters)
    step = schedule(tape, checkpointing=checkpointing)
    levels = [kept_bytes + tape.cast_bytes]
    live: dict[int, int] = {}
    _follow(step.forward, live, levels)
    backward = len(levels) - 1
    _follow(step.backward, live, levels)
    end = len(levels) - 1
    levels.append(levels[-1] - tape.cast_bytes)
    levels += [levels[-1] + optimizer.step_bytes(tape.parameters), kept_bytes]
    return Timeline(level_bytes=tuple(levels), starts=(0, backward, end), kept_bytes=kept_bytes)


def _follow(calls: Iterable[Call], live: dict[int, int], levels: list[int]) -> None:
    now = levels[-1]
    for key, n_bytes in calls:
        if n_bytes is None:
            now -= live.pop(key, 0)
        elif key < 0:
            levels.append(now + n_bytes)
        else:
            live[key] = n_bytes
            now += n_bytes
        levels.append(now)
