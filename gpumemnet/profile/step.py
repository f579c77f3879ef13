"""Memory over one training step of a summary, for display; a submission only needs its peaks."""

from __future__ import annotations

from gpumemnet.errors import SetupError
from gpumemnet.gpu_memory.allocator.timeline import Timeline
from gpumemnet.profile.build import taped
from gpumemnet.summaries.replay.optimizer_memory import OPTIMIZER_MEMORY
from gpumemnet.summaries.replay.timeline import timeline
from gpumemnet.summaries.texts.read import is_profile, rows_of, text_of
from gpumemnet.training import TrainingSetup


def step_of(path_or_text: str, setup: TrainingSetup) -> Timeline:
    """Return memory over one training step, by the analytical model.

    Args:
        path_or_text: A summary's path, or its text.
        setup: The training setup.

    Raises:
        SummaryError: The file or the text is unusable.
        SetupError: The setup is impossible for this model, or the text is a saved profile, which only has peaks.
    """
    text, path = text_of(path_or_text)
    if is_profile(text):
        raise SetupError(f"{path}: a saved profile contains only peaks; give the model's summary")
    _, _, tape, _ = taped(rows_of(text, setup, path=path), setup, path=path)
    return timeline(tape, OPTIMIZER_MEMORY[setup.optimizer], checkpointing=setup.gradient_checkpointing)
