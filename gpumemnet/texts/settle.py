"""Settle what the rows of a summary leave open: what does nothing, what is shared, what is frozen."""

from __future__ import annotations

from gpumemnet.texts.frozen import freeze_first
from gpumemnet.texts.idle_dropout import without_idle
from gpumemnet.texts.records import ModelSummary
from gpumemnet.texts.tied_weights import count_once


def settle(summary: ModelSummary) -> ModelSummary:
    """Mark dropouts that drop nothing, count shared weights once, mark the frozen layers."""
    return freeze_first(count_once(without_idle(summary)))
