"""Draw docs/img/gain.svg, the README's chart of what sharing brings, from the recorded replays of six users.

    python3 bench/gain_chart.py

Standard library only. tests/unit/bench/test_bench_gain_chart.py compares the committed chart with what this draws.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from statistics import mean

CHECKOUT = Path(__file__).resolve().parents[1]
REPLAYS = CHECKOUT / "docs" / "results" / "replay"
CHART = CHECKOUT / "docs" / "img" / "gain.svg"
TRACE = "philly_t1"
BARS = (
    ("whole", "whole GPUs", "#9aa5b1"),
    ("hand-mps", "shards by hand, MPS", "#66b2b2"),
    ("magm", "RAD", "#00796b"),
    ("magm, gpu", "RAD, one server a GPU", "#004d40"),
)
"""A replay's policy with its `mps_server`, its label and its colour."""
PANELS = (
    ("makespan_s", "all jobs done after"),
    ("mean_completion_s", "mean time from submission to end"),
)
"""A figure of a replay, in seconds, and its title."""
WIDTH, LEFT, RIGHT = 700, 170, 70
ROW, HEAD = 22, 30


def recorded() -> dict[str, dict[str, float]]:
    """Return the figures of each policy, means over its replays, by policy and `mps_server`."""
    runs: dict[str, list[dict[str, float]]] = {}
    for path in sorted(REPLAYS.glob(f"{TRACE}-*users6-nccl-r?.json.xz")):
        replay = json.loads(lzma.decompress(path.read_bytes()))
        if replay.get("faulty") or "compute_overcommit" in replay["settings"]:
            continue
        server = replay["settings"].get("mps_server", "").strip('"')
        runs.setdefault(", ".join(filter(None, (replay["policy"], server))), []).append(replay["figures"])
    return {
        name: {key: mean(one[key] for one in figures) for key, _ in PANELS} for name, figures in runs.items()
    }


def drawn(figures: dict[str, dict[str, float]]) -> str:
    """Return the chart as SVG: a group of bars for each panel, one bar a policy, all to one scale.

    Args:
        figures: As `recorded` returns them.
    """
    most = max(figures[policy][key] for policy, _, _ in BARS for key, _ in PANELS)
    rows, y = [], 8
    for key, title in PANELS:
        y += HEAD
        rows.append(f'<text x="{LEFT}" y="{y - 8}" font-weight="bold">{title}</text>')
        for policy, label, colour in BARS:
            seconds = figures[policy][key]
            length = round(seconds / most * (WIDTH - LEFT - RIGHT), 1)
            rows += [
                f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">{label}</text>',
                f'<rect x="{LEFT}" y="{y + 3}" width="{length}" height="{ROW - 6}" rx="2" fill="{colour}"/>',
                f'<text x="{LEFT + length + 6}" y="{y + 15}">{seconds:.0f} s</text>',
            ]
            y += ROW
    height = y + 10
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
            f'height="{height}" role="img" font-family="sans-serif" font-size="13" fill="#24323d">',
            "<title>60 jobs of six users on two H100s: time with whole GPUs, shards by hand and RAD</title>",
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
            *rows,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    CHART.write_text(drawn(recorded()), encoding="utf-8")
