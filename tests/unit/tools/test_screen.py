from __future__ import annotations

from xml.etree import ElementTree

from tools.screen import as_svg

SCREEN = "Memory [||||::   1/2/4G]\nn1  <job>  & more\n"


def test_a_screen_is_drawn_with_its_columns_and_bars() -> None:
    drawn = as_svg(SCREEN, "a <screen>")
    root = ElementTree.fromstring(drawn)
    lines = [
        "".join(each.itertext()).replace("\N{NO-BREAK SPACE}", " ")
        for each in root.iter()
        if each.tag.endswith("}text")
    ]
    assert lines == SCREEN.splitlines()
    bars = [each.text for each in root.iter() if each.tag.endswith("}tspan")]
    assert bars == ["||||", "::"]
