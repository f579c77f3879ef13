"""Read a summary from a file or a text and compare it with the user's settings."""

from __future__ import annotations

from gpumemnet.errors import SummaryError
from gpumemnet.summaries.texts import contradictions, open_tokens, other_formats, unknown_sizes, ways
from gpumemnet.summaries.texts.batch_second import batch_first
from gpumemnet.summaries.texts.files import read_text
from gpumemnet.summaries.texts.formats.detect import parse_text
from gpumemnet.summaries.texts.notebook import is_notebook, outputs_of
from gpumemnet.summaries.texts.records import ModelSummary
from gpumemnet.training import TrainingSetup

_FORMAT_WITHIN = 100
"""Number of initial characters of a saved profile that contain its format, even if it was cut off."""


def read(path_or_text: str, setup: TrainingSetup) -> tuple[ModelSummary, str]:
    """Parse a summary.

    Args:
        path_or_text: A file's path, or the text (recognized by a line break).
        setup: The training setup.

    Returns:
        The summary, and its name in messages.

    Raises:
        SummaryError: The file or the text is unusable.
        SetupError: The text contradicts the setup.
    """
    text, path = text_of(path_or_text)
    return rows_of(text, setup, path=path), path


def text_of(path_or_text: str) -> tuple[str, str]:
    """Return the text, and its name in messages; arguments and errors as for `read`."""
    text, path = (
        (path_or_text, "summary") if "\n" in path_or_text else (read_text(path_or_text), path_or_text)
    )
    return (outputs_of(text) if is_notebook(text) else text), path


def is_profile(text: str) -> bool:
    """Return whether a text is a saved profile, or other JSON; logs may begin with a printed dictionary."""
    inside = text.strip()
    return inside[:1] == "{" and (inside[-1:] == "}" or '"format"' in inside[:_FORMAT_WITHIN])


def rows_of(text: str, setup: TrainingSetup, *, path: str) -> ModelSummary:
    """Parse a text; errors as for `read`.

    Args:
        text: The whole text.
        setup: The training setup.
        path: File, for messages.

    Returns:
        The summary.
    """
    other_formats.check(text, path=path, parsed=True)
    try:
        parsed = parse_text(text, path=path)
    except SummaryError:
        other_formats.check(text, path=path, parsed=False)
        raise
    summary = open_tokens.filled(batch_first(parsed), setup.seq_len)
    advice = ways.check(summary, path=path)
    unknown_sizes.check(summary, path=path)
    found = (*advice, *contradictions.check(summary, setup, path=path))
    return summary._replace(warnings=(*summary.warnings, *found)) if found else summary
