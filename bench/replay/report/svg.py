"""Charts as inline SVG, which need neither a program nor a network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from replay.report.charts import Bars, Chart, LabelledLines

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#222222")
"""Distinguishable with colour vision deficiency, too (Paul Tol's bright scheme)."""
WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 30, 40
LETTER, TITLE_LETTER = 6.2, 7.6
"""Upper limit of a letter's average width in the page's style."""
MARK = 26
"""Width of a legend label without its letters."""
APART = 24
"""Gap between the titles of two adjacent charts."""


def svg(chart: Chart) -> str:
    """Return a chart as an SVG element."""
    body = _bars(chart) if isinstance(chart, Bars) else _lines(chart)
    rows = -(-len(chart.labels) // columns(chart.labels))
    height = HEIGHT + 18 * rows
    narrow = ""
    if len(chart.title) * TITLE_LETTER > WIDTH - APART:
        narrow = f' textLength="{WIDTH - APART}" lengthAdjust="spacingAndGlyphs"'
    title = (
        f'<text x="{WIDTH / 2}" y="16" text-anchor="middle" class="t"{narrow}>{escape(chart.title)}</text>'
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(chart.title)}">'
        f"{title}{''.join(body)}{''.join(_legend(chart.labels))}</svg>"
    )


def columns(labels: Sequence[str]) -> int:
    """Return how many labels of a legend fit next to each other, four at most.

    >>> columns(["whole", "magm"]), columns(["magm rad share_multi_gpu=true compute_overcommit=1.75"] * 3)
    (2, 1)
    """
    widest = max((len(label) for label in labels), default=0) * LETTER + MARK
    return max(1, min(4, len(labels), int((WIDTH - LEFT - RIGHT) / widest)))


def ticks(most: float) -> list[float]:
    """Return round values from 0 to at least the largest value.

    >>> ticks(7.2), ticks(0.0)
    ([0.0, 2.0, 4.0, 6.0, 8.0], [0.0, 1.0])
    """
    if most <= 0:
        return [0.0, 1.0]
    rough = most / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= rough)
    return [round(k * step, 10) for k in range(math.ceil(most / step - 1e-9) + 1)]


def _frame(y_ticks: Sequence[float], y: str) -> list[str]:
    found = []
    for value in y_ticks:
        at = _y(value, y_ticks[-1])
        found.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" class="g"/>')
        found.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{value:g}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    found.append(
        f'<text transform="translate(14 {middle:.0f}) rotate(-90)" text-anchor="middle">{escape(y)}</text>'
    )
    return found


def _bars(chart: Bars) -> list[str]:
    y_ticks = ticks(max((value for row in chart.values for value in row), default=0.0))
    found = _frame(y_ticks, chart.unit)
    wide = (WIDTH - LEFT - RIGHT) / max(1, len(chart.groups))
    each = wide * 0.84 / max(1, len(chart.labels))
    for g, group in enumerate(chart.groups):
        left = LEFT + g * wide + wide * 0.08
        for k, row in enumerate(chart.values):
            at = _y(row[g], y_ticks[-1])
            high = HEIGHT - BOTTOM - at
            tooltip = f"<title>{escape(chart.labels[k])}: {row[g]:.4g} {escape(chart.unit)}</title>"
            found.append(
                f'<rect x="{left + k * each:.1f}" y="{at:.1f}" width="{each * 0.92:.1f}" height="{high:.1f}" '
                f'fill="{COLOURS[k % len(COLOURS)]}">{tooltip}</rect>'
            )
        middle = LEFT + (g + 0.5) * wide
        found.append(
            f'<text x="{middle:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{escape(group)}</text>'
        )
    return found


def _lines(chart: LabelledLines) -> list[str]:
    y_ticks = ticks(max((y for row in chart.points for _, y in row), default=0.0))
    most = max((x for row in chart.points for x, _ in row), default=0.0) or 1.0
    found = _frame(y_ticks, chart.y)
    for value in ticks(most):
        if value > most:
            break
        at = _x(value, most)
        found.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{value:g}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    found.append(f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(chart.x)}</text>')
    for k, row in enumerate(chart.points):
        path: list[str] = []
        before = 0.0
        for x, y in row:
            left = f"{_x(x, most):.1f}"
            if chart.steps and path:
                path.append(f"{left},{before:.1f}")
            before = _y(y, y_ticks[-1])
            path.append(f"{left},{before:.1f}")
        colour = COLOURS[k % len(COLOURS)]
        found.append(
            f'<polyline points="{" ".join(path)}" fill="none" stroke="{colour}" stroke-width="1.4"/>'
        )
    return found


def _legend(labels: Sequence[str]) -> list[str]:
    found = []
    per_row = columns(labels)
    wide = (WIDTH - LEFT - RIGHT) / per_row
    for k, label in enumerate(labels):
        x, y = LEFT + k % per_row * wide, HEIGHT + 10 + 18 * (k // per_row)
        found.append(
            f'<rect x="{x:.1f}" y="{y - 9}" width="10" height="10" fill="{COLOURS[k % len(COLOURS)]}"/>'
        )
        found.append(f'<text x="{x + 14:.1f}" y="{y}">{escape(label)}</text>')
    return found


def _x(value: float, most: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * value / most


def _y(value: float, most: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / most
