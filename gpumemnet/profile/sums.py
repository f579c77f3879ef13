"""Sums for a profile: weights, tensors saved for backward, the largest of each, peaks, layers by group.

Each function returns some numbers of a ModelProfile by field name; the fields are documented there.
"""

from __future__ import annotations

from collections import Counter

from gpumemnet.names import Group, Precision
from gpumemnet.summaries.graph.tape import Tape
from gpumemnet.summaries.replay.training_step import ReplayResult
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.records import ModelSummary
from gpumemnet.units import MEGA

Numbers = dict[str, int]


def count_groups(summary: ModelSummary, tape: Tape) -> Counter[str]:
    """Count the running layers by the group of their kind, and attention as operations of the tape.

    Args:
        summary: The layers.
        tape: Their tape.
    """
    found = Counter[str]()
    running = [layer.kind for layer in summary.layers if layer.runs and not layer.is_block]
    for kind, number in Counter(running).items():
        if kind != "parameter":
            found[kinds.group_of(kind)] += number
    found[Group.ATTENTION] = sum(op.group is Group.ATTENTION for op in tape.ops)
    return found


def weights(summary: ModelSummary, tape: Tape, precision: Precision) -> Numbers:
    """Sum up parameters and gradients.

    Args:
        summary: The layers.
        tape: Their tape.
        precision: Determines the bytes of a parameter.
    """
    item_bytes = 2 if precision is Precision.BF16 else 4
    gradient_bytes = sum(tape.parameters)
    loose = sum(layer.params or 0 for layer in summary.layers if layer.kind == "parameter")
    counted = sum(layer.params or 0 for layer in summary.layers)
    return {
        "parameters": gradient_bytes // item_bytes,
        "parameter_bytes": gradient_bytes + sum(tape.frozen),
        "gradient_bytes": gradient_bytes,
        "cast_bytes": tape.cast_bytes,
        "loose_bytes": (loose + max((summary.total_params or 0) - counted, 0)) * item_bytes,
        "weights": len(tape.parameters),
    }


def activations(tape: Tape) -> Numbers:
    """Sum up inputs, outputs and tensors saved for backward, in bytes."""
    saved = _saved(tape)
    return {
        "input_bytes": sum(tape.sizes[number] for number in tape.constants),
        "output_bytes": tape.sizes[tape.ops[-1].output],
        "output_sum_bytes": sum(tape.sizes[op.output] for op in tape.ops),
        "saved_bytes": sum(saved.values()),
        "saved_conv_bytes": saved[Group.CONV],
        "saved_linear_bytes": saved[Group.LINEAR],
        "saved_norm_bytes": saved[Group.BATCHNORM] + saved[Group.LAYERNORM],
        "saved_activation_bytes": saved[Group.ACTIVATION],
        "saved_attention_bytes": saved[Group.ATTENTION],
        "saved_mask_bytes": saved["mask"],
        "score_bytes": tape.score_bytes,
        "doubt_bytes": tape.doubt_bytes,
        "hidden_bytes": tape.hidden_bytes,
        "hidden_factor": tape.hidden_percent,
    }


def largest(tape: Tape) -> Numbers:
    """Find the largest tensors and workspaces, in bytes."""
    workspaces = (max(op.data_workspace_bytes, op.weight_workspace_bytes) for op in tape.ops)
    return {
        "borrowed_bytes": max(workspaces, default=0),
        "fourier_bytes": tape.fourier_bytes,
        "largest_bytes": max(tape.sizes),
        "largest_conv_bytes": _largest_pair(tape, Group.CONV),
        "largest_linear_bytes": _largest_pair(tape, Group.LINEAR),
        "largest_weight_bytes": max(tape.parameters, default=0),
    }


def peaks(result: ReplayResult) -> Numbers:
    """Return the replay's peaks, in bytes."""
    return {
        "optimizer_bytes": result.optimizer_bytes,
        "step_bytes": result.step_bytes,
        "forward_end_bytes": result.forward_end_bytes,
        "allocated_bytes": result.allocated_peak_bytes,
        "reserved_bytes": result.reserved_bytes,
    }


def counts(summary: ModelSummary, tape: Tape, groups: Counter[str]) -> Numbers:
    """Count tensors and layers.

    Args:
        summary: The layers.
        tape: Their tape.
        groups: Result of `count_groups`.
    """
    functions = sum(op.group is Group.FUNCTION for op in tape.ops)
    return {
        "tensors": len(tape.sizes) + sum(op.output in op.inputs for op in tape.ops),  # overwritten ones twice
        "convs": groups[Group.CONV],
        "grouped_convs": tape.grouped,
        "linears": groups[Group.LINEAR],
        "norms": groups[Group.BATCHNORM] + groups[Group.LAYERNORM],
        "activations": groups[Group.ACTIVATION],
        "attentions": groups[Group.ATTENTION],
        "embeddings": groups[Group.EMBEDDING],
        "recurrents": groups[Group.RNN],
        "guessed": tape.guessed + functions,
        "idle": sum(layer.kind == "identity" for layer in summary.layers),
        "unknown": groups[Group.UNKNOWN],
        "mega_mult_adds": -(-tape.mult_adds // MEGA),
    }


def _saved(tape: Tape) -> Counter[str]:
    """Sum the bytes saved for backward by the group of the operation that saves them; each tensor counts once."""
    found = Counter[str]()
    seen: set[int] = set()
    for op in tape.ops:
        for number in op.saved:
            if number not in seen and number not in tape.constants:
                seen.add(number)
                found["mask" if number in op.extra else op.group] += tape.sizes[number]
    return found


def _largest_pair(tape: Tape, group: str) -> int:
    """Return the largest sum of bytes that one operation of a group reads and makes."""
    sizes = tape.sizes
    return max(
        (sizes[op.output] + sum(map(sizes.__getitem__, op.inputs)) for op in tape.ops if op.group == group),
        default=0,
    )
