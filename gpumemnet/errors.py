"""Errors a caller of gpumemnet can expect; every other exception is a bug."""

from __future__ import annotations


class GpuMemNetError(Exception):
    """Base of the expected errors; its text is one line for the user."""


def lines_of(error: GpuMemNetError) -> tuple[str, ...]:
    """Return one line for each problem."""
    return getattr(error, "lines", (str(error),))


class SummaryError(GpuMemNetError):
    """A model summary is missing, unreadable or not a summary.

    Attributes:
        path: The file, as named by the user.
        line: 1-based line number, or None for the whole file.
        problem: The problem, in a few words.
        fix: The fix.
    """

    def __init__(self, *, path: str, problem: str, fix: str, line: int | None = None) -> None:
        where = path if line is None else f"{path}:{line}"
        super().__init__(f"{where}: {problem}; {fix}")
        self.path, self.line, self.problem, self.fix = path, line, problem, fix


class SetupError(GpuMemNetError):
    """A training setting is impossible: batch size 0, an unknown optimizer."""


class ModelFileError(GpuMemNetError):
    """A weights file does not belong to this version."""


class TraceError(GpuMemNetError):
    """A model cannot be traced: unknown name, bad inputs, or it fails on them."""


class DirectiveError(GpuMemNetError):
    """`#RAD` lines or a `rad:` comment cannot be understood.

    Attributes:
        path: The script as named by the user, or "comment".
        line: 1-based line number; None in a comment.
        problem: The problem, in a few words.
        fix: The fix.
        lines: One line for each problem, this one first.
    """

    def __init__(
        self, *, path: str, line: int | None, problem: str, fix: str, more: tuple[DirectiveError, ...] = ()
    ) -> None:
        where = path if line is None else f"{path}:{line}"
        super().__init__(f"{where}: {problem}; {fix}")
        self.path, self.line, self.problem, self.fix = path, line, problem, fix
        self.lines: tuple[str, ...] = (str(self), *(str(each) for each in more))

    @classmethod
    def of_all(cls, errors: list[DirectiveError]) -> DirectiveError:
        """Return one error that reports all of them.

        Args:
            errors: At least one, in order of appearance.
        """
        first, *more = errors
        return cls(path=first.path, line=first.line, problem=first.problem, fix=first.fix, more=tuple(more))
