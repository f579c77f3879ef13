"""Draw a text screen as SVG: what a terminal shows, in a picture that needs no font of its own and stays sharp."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape

LETTER_PX, LINE_PX, MARGIN_PX = 7.8, 17, 12
_BAR = re.compile(r"\[(\|*)(:*)")
_USED, _BOOKED = "#3fb8a9", "#d9a441"


def as_svg(screen: str, title: str) -> str:
    """Return the picture; the filled parts of bars, `[|||:::`, are coloured.

    Args:
        screen: The text, without control characters.
        title: What it shows, for those who do not see it.
    """
    lines = [line.rstrip() for line in screen.rstrip().splitlines()]
    width = round(max(map(len, lines), default=0) * LETTER_PX + 2 * MARGIN_PX)
    height = len(lines) * LINE_PX + 2 * MARGIN_PX
    rows = "\n".join(
        f'<text x="{MARGIN_PX}" y="{MARGIN_PX + (number + 0.75) * LINE_PX:g}">{_coloured(line)}</text>'
        for number, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' role="img" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13" fill="#d6dee4">\n'
        f"<title>{escape(title)}</title>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#182026"/>\n{rows}\n</svg>\n'
    )


def _coloured(line: str) -> str:
    def bar(match: re.Match[str]) -> str:
        parts = (("[", ""), (match[1], _USED), (match[2], _BOOKED))
        return "".join(
            f'<tspan fill="{colour}">{text}</tspan>' if colour else text for text, colour in parts if text
        )

    return (
        _BAR.sub(bar, escape(line)).replace(" <", "\N{NO-BREAK SPACE}<").replace("  ", "\N{NO-BREAK SPACE} ")
    )
