"""The README's chart is that of the recorded replays."""

from __future__ import annotations

import sys

from paths import CHECKOUT

sys.path.insert(0, str(CHECKOUT / "bench"))
from gain_chart import CHART, drawn, recorded


def test_the_committed_chart_is_what_the_replays_say() -> None:
    assert CHART.read_text(encoding="utf-8") == drawn(recorded()), "run: python3 bench/gain_chart.py"


def test_a_bar_is_as_long_as_its_figure_is_large() -> None:
    figures = {
        policy: {"makespan_s": seconds, "mean_completion_s": seconds / 2}
        for policy, seconds in (("whole", 100.0), ("hand-mps", 50.0), ("magm", 10.0), ("magm, gpu", 5.0))
    }
    chart = drawn(figures)
    for length in (460.0, 230.0, 115.0, 46.0, 23.0, 11.5):
        assert f'width="{length}"' in chart
    assert ">100 s<" in chart and ">10 s<" in chart
