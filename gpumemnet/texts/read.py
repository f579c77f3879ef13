"""Read a summary: a file that the user names, or the text itself."""

from __future__ import annotations

from gpumemnet.texts.files import read_text
from gpumemnet.texts.formats.detect import parse_text
from gpumemnet.texts.records import ModelSummary


def read(path_or_text: str) -> tuple[ModelSummary, str]:
    """Parse a summary.

    Args:
        path_or_text: A file's path, or the text itself (told by a line break in it).

    Returns:
        The summary, and what to call it in messages.

    Raises:
        SummaryError: The file or the text is unusable.
    """
    text, path = text_of(path_or_text)
    return parse_text(text, path=path), path


def text_of(path_or_text: str) -> tuple[str, str]:
    """Return the text that is meant, and what to call it in messages; arguments and errors as for `read`."""
    if "\n" in path_or_text:
        return path_or_text, "summary"
    return read_text(path_or_text), path_or_text
