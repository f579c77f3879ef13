"""Warnings about layers that a text hides, and about a text that hides nearly all."""

from __future__ import annotations

import re

from gpumemnet.names import Source
from gpumemnet.summaries.collapsed_blocks.scale import UNKNOWN_PERCENT
from gpumemnet.summaries.graph.tape import Tape
from gpumemnet.summaries.texts.records import ModelSummary
from gpumemnet.units import to_mib_nearest

FULL_DEPTH = (
    'torchinfo.summary(model, input_size=..., depth=99, col_names=["input_size", "output_size", "num_params",'
    ' "kernel_size", "mult_adds"])'
)
"""The command for a torchinfo text with all details."""


_STATE_SPACE = r"^(?:Falcon|Jamba|Bamba|Zamba2?|Codestral)?Mamba2?(?:Mixer|Block)$"


def steps_through_time(summary: ModelSummary) -> bool:
    """Return whether a model has layers that step through time in Python, and keep tensors that no row shows."""
    return any(re.match(_STATE_SPACE, cls) for layer in summary.layers for cls, _ in layer.path)


def about_hidden(tape: Tape, summary: ModelSummary) -> list[str]:
    """Return warnings about layers that the text hides.

    Args:
        tape: The built tape.
        summary: The layers.
    """
    warnings: list[str] = []
    if summary.format is Source.MODULE_REPR and not summary.warnings:  # they recommend a better text
        warnings.append(
            "print(model) shows neither sizes nor the order in which modules run, so more is booked than needed;"
            f" save the text of {FULL_DEPTH}"
        )
    if steps_through_time(summary):
        warnings.append(
            "a state-space layer that runs as plain PyTorch keeps a state for each token, which no text shows;"
            " estimate it from its code: rad-estimate -- python train.py"
        )
    elif tape.hidden_percent >= UNKNOWN_PERCENT:
        warnings.append(f"the text hides nearly all layers; print it with {FULL_DEPTH}")
    elif hidden := sum(layer.is_block and bool(layer.params) for layer in summary.layers):
        what = "what a block is" if hidden == 1 else f"what {hidden} blocks are"
        warnings.append(
            f"the text hides {what} made of, so more is booked than needed; print it with {FULL_DEPTH}"
        )
        if 2 * tape.doubt_bytes > sum(tape.sizes):
            warnings.append(
                f"attention in what it hides is taken to be fused; scores that are written out take up to"
                f" {to_mib_nearest(tape.doubt_bytes)} MiB more"
            )
    return warnings
