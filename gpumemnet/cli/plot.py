"""Plot memory over one training step: as text for the terminal, as SVG, or as an HTML page with that SVG."""

from __future__ import annotations

import html
from itertools import pairwise
from pathlib import Path

from gpumemnet.errors import SetupError
from gpumemnet.gpu_memory.allocator.timeline import PHASES, Timeline
from gpumemnet.units import GIB, to_mib_nearest

_COLUMNS, _ROWS = 72, 14
_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 900, 420, 70, 40, 40
_COLOURS = ("#2f6fb2", "#b2572f", "#3f8f4f")


def as_text(course: Timeline, base_bytes: int, title: str) -> str:
    """Return the plot as text.

    Args:
        course: Memory over the step.
        base_bytes: Memory of the process apart from its tensors.
        title: A line above it.
    """
    binned, starts = _binned(course, _COLUMNS)
    levels = [base_bytes + one for one in binned]
    top = max(levels)
    lines = [title]
    for row in range(_ROWS, 0, -1):
        cells = [min(max(one / top * _ROWS - (row - 1), 0.0), 1.0) for one in levels]
        label = f"{top * row / _ROWS / GIB:7.1f} GiB " if row in (_ROWS, _ROWS // 2) else " " * 12
        lines.append(label + "".join(_BARS[round(cell * (len(_BARS) - 1))] for cell in cells))
    axis = [" "] * (_COLUMNS + 12)
    for name, start in zip(PHASES, starts, strict=True):
        at = min(start, _COLUMNS - len(name))
        axis[at : at + len(name)] = name
    lines.append(" " * 12 + "".join(axis).rstrip())
    lines.append(_caption(course, base_bytes))
    return "\n".join(lines)


def write(course: Timeline, base_bytes: int, title: str, path: Path) -> None:
    """Write the plot to a file.

    Args:
        course: Memory over the step.
        base_bytes: Memory of the process apart from its tensors.
        title: A line above it.
        path: The file; its suffix selects the form: .svg, .html, or .png (needs matplotlib).

    Raises:
        SetupError: The file cannot be written, or the form is not supported.
    """
    try:
        if path.suffix == ".png":
            _write_png(course, base_bytes, title, path)
        elif path.suffix in (".svg", ".html"):
            path.write_text(_page(course, base_bytes, title, bare=path.suffix == ".svg"), encoding="utf-8")
        else:
            raise SetupError(
                f"--plot {path}: name a file that ends in .svg, .html or .png, or - for the terminal"
            )
    except OSError as exc:
        raise SetupError(f"--plot {path}: {exc.strerror}; check the path") from exc


def _caption(course: Timeline, base_bytes: int) -> str:
    peak = max(course.level_bytes)
    return (
        f"at the peak {to_mib_nearest(base_bytes + peak)} MiB: {to_mib_nearest(base_bytes)} of the process, "
        f"{to_mib_nearest(course.kept_bytes)} that stay between steps, "
        f"{to_mib_nearest(peak - course.kept_bytes)} of this step; before the allocator's reserve and what was learned"
    )


def _binned(course: Timeline, columns: int) -> tuple[list[int], list[int]]:
    """Return the highest value in each column, and the column where each phase starts."""
    levels = course.level_bytes
    edges = [at * len(levels) // columns for at in range(columns + 1)]
    bins = [max(levels[low : max(high, low + 1)]) for low, high in pairwise(edges)]
    return bins, [start * columns // len(levels) for start in course.starts]


def _page(course: Timeline, base_bytes: int, title: str, *, bare: bool) -> str:
    binned, starts = _binned(course, min(_WIDTH - _LEFT, len(course.level_bytes)))
    levels = [base_bytes + one for one in binned]
    top, wide = max(levels) * 1.05, (_WIDTH - _LEFT - 10) / len(levels)

    def x(at: float) -> float:
        return round(_LEFT + at * wide, 1)

    def y(n_bytes: float) -> float:
        return round(_HEIGHT - _BOTTOM - n_bytes / top * (_HEIGHT - _TOP - _BOTTOM), 1)

    parts = [f'<text x="{_LEFT}" y="22" font-size="15">{html.escape(title)}</text>']
    for number, (name, start) in enumerate(zip(PHASES, starts, strict=True)):
        end = [*starts, len(levels)][number + 1]
        line = " ".join(f"{x(at)},{y(levels[at])} {x(at + 1)},{y(levels[at])}" for at in range(start, end))
        area = f"{x(start)},{y(0)} {line} {x(end)},{y(0)}"
        parts.append(f'<polygon points="{area}" fill="{_COLOURS[number]}" fill-opacity="0.35"/>')
        where = min(x(start), _WIDTH - 80)
        parts.append(
            f'<text x="{where}" y="{_HEIGHT - 18}" font-size="12" fill="{_COLOURS[number]}">{name}</text>'
        )
    for name, n_bytes in (("process", base_bytes), ("between steps", base_bytes + course.kept_bytes)):
        level = y(n_bytes)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{level}" y2="{level}" stroke="#888" stroke-dasharray="4"/>'
        )
        parts.append(f'<text x="{_WIDTH - 110}" y="{level - 4}" font-size="11" fill="#555">{name}</text>')
    for quarter in range(5):
        mark = max(levels) * quarter / 4
        parts.append(f'<text x="4" y="{y(mark) + 4}" font-size="11">{mark / GIB:.1f} GiB</text>')
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'font-family="sans-serif">{"".join(parts)}</svg>\n'
    )
    if bare:
        return svg
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
    return f"{head}{svg}<p>{html.escape(_caption(course, base_bytes))}</p></html>\n"


def _write_png(course: Timeline, base_bytes: int, title: str, path: Path) -> None:
    try:
        import matplotlib  # type: ignore[import-not-found,unused-ignore]  # only this form needs it
    except ImportError as exc:
        raise SetupError(f"--plot {path}: a .png needs matplotlib; .svg and .html need nothing") from exc
    matplotlib.use("Agg")
    from matplotlib import pyplot  # type: ignore[import-not-found,unused-ignore]

    figure, axes = pyplot.subplots(figsize=(9, 4.2))
    levels = [(base_bytes + one) / GIB for one in course.level_bytes]
    ends = [*course.starts[1:], len(levels) - 1]
    for name, colour, start, end in zip(PHASES, _COLOURS, course.starts, ends, strict=True):
        axes.fill_between(
            range(start, end + 1), levels[start : end + 1], color=colour, alpha=0.35, step="post", label=name
        )
    axes.set(title=title, ylabel="GiB", xlabel="calls of the allocator", ylim=(0, None))
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
