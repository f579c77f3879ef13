"""Summary texts of measured runs, and the choice among copies of a text."""

from __future__ import annotations

from typing import Any

from gpumemnet.learning.dataset.config import Configuration
from gpumemnet.training import TrainingSetup


def setup_of(record: dict[str, Any]) -> TrainingSetup:
    """Return the settings that a job's owner would have stated for this run."""
    return TrainingSetup(
        batch_size=record["batch_size"],
        seq_len=record["seq_len"],
        optimizer=record["optimizer"],
        precision=record["precision"],
        gradient_checkpointing=record["gradient_checkpointing"],
    )


def texts_of(record: dict[str, Any]) -> dict[str, str]:
    """Return the summary texts of a record, made from its configuration."""
    from gpumemnet.learning.dataset.summaries import texts

    return texts(Configuration.from_json(record))
