"""The one way from a text to rows: a file that the user names, or the text itself, held against what the user says."""

from __future__ import annotations

from gpumemnet.texts import contradictions
from gpumemnet.texts.batch_second import batch_first
from gpumemnet.texts.files import read_text
from gpumemnet.texts.formats.detect import parse_text
from gpumemnet.texts.records import ModelSummary
from gpumemnet.training import TrainingSetup


def read(path_or_text: str, setup: TrainingSetup) -> tuple[ModelSummary, str]:
    """Parse a summary.

    Args:
        path_or_text: A file's path, or the text itself (told by a line break in it).
        setup: How the model is trained.

    Returns:
        The summary, and what to call it in messages.

    Raises:
        SummaryError: The file or the text is unusable.
        SetupError: The text contradicts the setup.
    """
    text, path = text_of(path_or_text)
    return rows_of(text, setup, path=path), path


def text_of(path_or_text: str) -> tuple[str, str]:
    """Return the text that is meant, and what to call it in messages; arguments and errors as for `read`."""
    if "\n" in path_or_text:
        return path_or_text, "summary"
    return read_text(path_or_text), path_or_text


def rows_of(text: str, setup: TrainingSetup, *, path: str) -> ModelSummary:
    """Parse a text that was read; errors as for `read`.

    Args:
        text: The whole text.
        setup: How the model is trained.
        path: File, for messages.

    Returns:
        The summary.
    """
    summary = batch_first(parse_text(text, path=path))
    contradictions.check(summary, setup, path=path)
    return summary
