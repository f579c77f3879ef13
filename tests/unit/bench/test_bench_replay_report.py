"""The page that compares replays: whole, without anything to load, honest about runs that were cut off or simulated."""

from __future__ import annotations

import doctest
import json
import lzma
import re
import statistics
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
from paths import CHECKOUT

sys.path.insert(0, str(CHECKOUT / "bench"))

from replay.report import runs as runs_of_files
from replay.report import svg as drawing
from replay.report.__main__ import main
from replay.report.charts import charts
from replay.report.runs import read_runs
from replay.report.svg import APART, HEIGHT, LEFT, LETTER, TITLE_LETTER, WIDTH, svg, ticks
from replay.report.text import tables

from slurm_plugin.core.errors import ConfigError


def write(folder: Path, policy: str, makespan_s: float, **more: Any) -> Path:
    jobs = [
        {
            "alone_s": 10.0,
            "runs": [{"outcome": "ok", "trains_s": 1.0, "end_s": 11.0 + 10.0 * k}],
        }
        for k in range(3)
    ]
    physical_gpu = {
        "index": 0,
        "name": "A <GPU>",
        "used_mib": [0, 2048, 1024],
        "smact": [None, 0.5, 0.25],
        "power_w": [90.0, 300.0, 200.0],
        "jobs": [0, 2, 1],
    }
    figures = {
        "makespan_s": makespan_s,
        "mean_waiting_s": 1.0,
        "mean_execution_s": 2.0,
        "mean_completion_s": 3.0,
        "energy_j": 230271.4,
        "crashes": 0,
    }
    row = {
        "version": 1,
        "trace": "t",
        "policy": policy,
        "estimates": None if policy == "whole" else "rad",
        "settings": {},
        "repetition": 1,
        "compress": 60.0,
        "cut": False,
        "stand_in": False,
        "figures": figures,
        "jobs": jobs,
        "samples": {"times_s": [0.0, 1.0, 2.0], "gpus": [physical_gpu]},
        "machine": {"slurm": "slurm-wlm 24.11.5", "commit": "abc1234"},
    }
    path = folder / f"{policy}-{len(list(folder.glob('*.json')))}.json"
    path.write_text(json.dumps(row | more))
    return path


def compare(*words: str) -> tuple[int, str]:
    """Return the exit status of the program and what it printed."""
    with redirect_stdout(StringIO()) as output, redirect_stderr(output):
        status = main(words)
    return status, output.getvalue()


def test_a_page_needs_nothing_else_and_compares_with_whole_gpus(tmp_path: Path) -> None:
    files = [write(tmp_path, "magm", 50.0), write(tmp_path, "whole", 200.0)]
    out = tmp_path / "page.html"
    status, output = compare(*map(str, files), "--out", str(out))
    assert status == 0, output
    text = out.read_text()
    assert "<td>50 (0.25)</td>" in text
    assert "<td>230,271" in text, "no exponents"
    assert text.index("<th>whole</th>") < text.index("<th>magm rad</th>")
    assert not re.search(r"https?://|<script|<link|src=", text)
    assert "A &lt;GPU&gt;" in text
    assert "cut off" not in text and "Simulated" not in text
    rows = [line.split() for line in output.splitlines()]
    assert rows[1][:2] == ["whole", "200"] and rows[2][:4] == ["magm", "rad", "50", "(0.25)"]


def test_repetitions_are_compared_with_the_mean_of_whole_gpus_and_their_spread_is_reported(
    tmp_path: Path,
) -> None:
    files = [
        write(tmp_path, policy, makespan_s, repetition=number)
        for number, whole_s, rads_s in ((1, 200.0, 50.0), (2, 100.0, 30.0))
        for policy, makespan_s in (("whole", whole_s), ("magm", rads_s))
    ]
    part = write(tmp_path, "magm", 7.0, first=30)
    out = tmp_path / "page.html"
    status, output = compare(*map(str, [*files, part]), "--out", str(out))
    assert status == 0, output
    text = out.read_text()
    assert "<td>50 (0.33)</td>" in text and "<td>30 (0.20)</td>" in text
    assert "<td>magm rad</td><td>2</td><td>0.20 to 0.33</td>" in text
    assert "(its first 30 jobs)" in text and "<td>7</td>" in text, (
        "a part of a trace is compared with no whole one"
    )
    assert text.count("<table>") == text.count('<div class="wide"><table>') == 3, (
        "a wide one scrolls by itself"
    )


def test_runs_of_several_users_are_compared_with_whole_gpus_of_as_many(tmp_path: Path) -> None:
    users = {"users": 6, "seed": 0}
    files = [write(tmp_path, "whole", 200.0), write(tmp_path, "whole", 100.0, **users)]
    files += [write(tmp_path, "magm", 50.0, **users), write(tmp_path, "lug", 50.0)]
    _, output = compare(*map(str, files), "--out", str(tmp_path / "page.html"))
    assert re.search(r"magm rad users=6 seed=0 +50 \(0\.50\)", output), output
    assert re.search(r"lug rad +50 \(0\.25\)", output), output


def test_a_run_that_was_cut_off_or_simulated_says_so_and_is_no_baseline(tmp_path: Path) -> None:
    files = [write(tmp_path, "magm", 50.0, stand_in=True), write(tmp_path, "whole", 200.0, cut=True)]
    out = tmp_path / "page.html"
    assert compare(*map(str, files), "--out", str(out))[0] == 0
    text = out.read_text()
    assert "whole was cut off" in text and "no real GPU was used" in text
    assert "(0.25)" not in text


@pytest.mark.parametrize(
    ("text", "shown"), [("{", "no JSON"), ("{}", "is missing"), ('{"version": 9}', "version 9")]
)
def test_what_is_no_run_is_refused_in_one_line(tmp_path: Path, text: str, shown: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=shown):
        read_runs([path])
    status, output = compare(str(path), "--out", str(tmp_path / "page.html"))
    assert status == 2
    assert len(output.strip().splitlines()) == 1


def test_a_compressed_run_is_read_as_the_plain_one(tmp_path: Path) -> None:
    plain = write(tmp_path, "magm", 50.0, settings={"smact_max": "0.5"})
    packed = tmp_path / f"{plain.name}.xz"
    packed.write_bytes(lzma.compress(plain.read_bytes()))
    assert read_runs([packed]) == read_runs([plain])
    assert {run.label for run in read_runs([plain, packed])} == {plain.stem}, (
        "named after its file, in both forms"
    )
    packed.write_bytes(plain.read_bytes())
    with pytest.raises(ConfigError, match=r"magm-0\.json\.xz: no JSON \(not compressed with xz"):
        read_runs([packed])
    packed.write_bytes(lzma.compress(plain.read_bytes())[:-40])
    with pytest.raises(ConfigError, match="not compressed with xz"):
        read_runs([packed])


def test_two_runs_that_differ_are_never_called_alike(tmp_path: Path) -> None:
    plain = write(tmp_path, "magm", 50.0)
    waits = write(tmp_path, "magm", 40.0, min_age_reserve_s=240)
    other = write(tmp_path, "magm", 30.0, settings={"share_multi_gpu": "true"})
    again = tmp_path / "the-same-by-another-commit.json"
    again.write_text(plain.read_text())
    names = sorted(run.label for run in read_runs([waits, other]))
    assert names == ["magm rad bf_min_age_reserve=4h", "magm rad share_multi_gpu=true"]
    assert {run.label for run in read_runs([plain, again])} == {plain.stem, again.stem}


def test_long_names_stand_below_each_other_and_long_titles_shrink(tmp_path: Path) -> None:
    long = {"share_multi_gpu": "true", "compute_overcommit": "1.75"}
    files = [write(tmp_path, policy, 50.0, settings=long) for policy in ("whole", "magm", "lug")]
    for chart in charts(read_runs(files)):
        texts = [
            text for text in ElementTree.fromstring(svg(chart)).iter("text") if text.text in chart.labels
        ]
        ends: dict[str, float] = {}
        for text in texts:
            left = float(text.attrib["x"])
            assert left >= ends.get(text.attrib["y"], 0.0), (
                "no name begins before the one next to it has ended"
            )
            ends[text.attrib["y"]] = left + LETTER * len(str(text.text))
        assert texts and max(ends.values()) <= WIDTH
        title = next(iter(ElementTree.fromstring(svg(chart)).iter("text")))
        assert (
            len(chart.title) * TITLE_LETTER <= WIDTH - APART
            or float(title.attrib["textLength"]) <= WIDTH - APART
        )


def test_charts_stay_within_their_frame(tmp_path: Path) -> None:
    runs = read_runs([write(tmp_path, "magm", 50.0), write(tmp_path, "whole", 200.0)])
    assert runs[0].slowdowns == [1.0, 2.0, 3.0]
    drawn = charts(runs)
    assert len(drawn) == 3 + 2 * 4
    for chart in drawn:
        tree = ElementTree.fromstring(svg(chart))
        for line in tree.iter("polyline"):
            for point in line.attrib["points"].split():
                x, y = map(float, point.split(","))
                assert LEFT <= x <= WIDTH and 0 <= y <= HEIGHT
        for bar in tree.iter("rect"):
            assert float(bar.attrib["height"]) >= 0


def test_runs_that_exchange_gradients_are_distinguished_from_those_that_copy_them(tmp_path: Path) -> None:
    copies, exchanged = write(tmp_path, "magm", 50.0), write(tmp_path, "magm-nccl", 40.0)
    exchanged.write_text(json.dumps({**json.loads(exchanged.read_text()), "exchange": "nccl", "first": 9}))
    titles = [table.partition("  ")[0] for table in tables(read_runs([copies, exchanged]))]
    assert len(set(titles)) == 2
    assert any(title.endswith("times faster, gradients by nccl") for title in titles), titles
    assert any("(its first 9 jobs)" in title for title in titles), titles


@pytest.mark.parametrize("most", [0.0, 0.003, 0.99, 1.0, 7.2, 83.0, 123456.0])
def test_ticks_are_few_and_reach_the_top(most: float) -> None:
    found = ticks(most)
    assert found[0] == 0.0 and found[-1] >= most
    assert 2 <= len(found) <= 7
    assert found == sorted(set(found))


MEANS_OF_README = {
    "whole GPUs": "philly_t1-whole-c180",
    "by hand": "philly_t1-hand-mps-c180-pass4h",
    "RAD": "philly_t1-magm-rad-c180-share_multi_gpu=true-pass4h",
    "one server": "philly_t1-magm-rad-c180-share_multi_gpu=true-mps_server=gpu-pass4h",
}
"""A column of README's table, and the name of its runs up to the users."""


def test_the_figures_of_the_readme_are_those_of_the_recorded_runs(tmp_path: Path) -> None:
    """README.md has the mean and the spread of all runs, and names the report with the command that prints each."""
    readme, report = (CHECKOUT / "README.md").read_text(), "docs/measurements/2026-11-users.md"
    assert report in readme
    assert "-m replay.report docs/results/replay/*users6*.json.xz" in (CHECKOUT / report).read_text()
    printed = reported(["*users6*.json.xz"], tmp_path).partition("\nphilly_t1,")[2]
    whole: dict[str, float] = {}
    for name in MEANS_OF_README.values():
        paths = sorted((CHECKOUT / "docs/results/replay").glob(f"{name}-users6-nccl-r?.json.xz"))
        runs = [json.loads(lzma.decompress(path.read_bytes()))["figures"] for path in paths]
        assert all(f"{run['makespan_s']:.1f}" in printed for run in runs)
        found = {
            key: statistics.mean(run[key] for run in runs) for key in runs[0] if runs[0][key] is not None
        }
        base = whole or found
        wanted = []
        for key, scale, unit in (
            ("makespan_s", 1, "s"),
            ("mean_completion_s", 1, "s"),
            ("energy_j", 1000, "kJ"),
        ):
            reached = [run[key] for run in runs]
            half = f"{(max(reached) - min(reached)) / 2 / scale:.0f}"
            mean = f"{found[key] / scale:.0f}" + ("" if half == "0" else f" ± {half}")
            wanted.append(f"{mean} {unit}" + (f" ({found[key] / base[key]:.2f})" if whole else ""))
        wanted.append(f"{found['median_slowdown']:.1f}, {found['p95_slowdown']:.1f}")
        assert [figure for figure in wanted if figure not in readme] == []
        whole = base


def test_the_command_of_the_results_finds_the_recorded_runs(tmp_path: Path) -> None:
    """The page's tables are compared with the runs in tests/unit/project/test_results.py."""
    assert " docs/results/replay/*.json.xz " in (CHECKOUT / "docs" / "results.md").read_text()
    printed = reported(["*.json.xz"], tmp_path)
    for line, shown in (
        ("hand-mps", "254 (0.58)"),
        ("=4h run 2", "174.1 (0.40)"),
        ("users=6 seed=0", "166.9 (0.39)"),
        ("=4h", "193.8 (0.41)"),
        ("=4h", "195.8 (0.45)"),
        ("=4h", "151.9 (0.35)"),
        ("=4h run 2", "155.5 (0.36)"),
        ("=4h", "107.2 (0.34)"),
    ):
        assert re.search(rf"(?m)^.*{re.escape(line)} +{re.escape(shown)}", printed), printed


def reported(names: list[str], folder: Path) -> str:
    """Return what the comparison prints of recorded replays, by the patterns of their names."""
    files = [str(path) for each in names for path in (CHECKOUT / "docs/results/replay").glob(each)]
    status, output = compare(*files, "--out", str(folder / "runs.html"))
    assert status == 0, output
    return output


@pytest.mark.parametrize("module", [drawing, runs_of_files], ids=lambda module: module.__name__)
def test_the_examples_of_the_docstrings_are_true(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted and not found.failed


def test_the_command_runs_as_the_documents_say(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "replay.report", str(write(tmp_path, "whole", 200.0))]
    done = subprocess.run(
        [*argv, "--out", str(tmp_path / "page.html")],
        env={"PYTHONPATH": "bench:."},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and done.stdout.endswith("page.html: 1 runs\n"), done.stderr


def _put(row: Any, path: tuple[Any, ...], value: Any) -> Any:
    at = row
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    return row


FIGURE = ("figures", "makespan_s")
PLACES: tuple[tuple[Any, ...], ...] = (
    FIGURE,
    ("figures", "jobs"),
    ("repetition",),
    ("compress",),
    ("jobs", 0, "alone_s"),
    ("jobs", 0, "runs", 0, "end_s"),
    ("samples", "times_s", 0),
    ("samples", "gpus", 0, "index"),
    ("samples", "gpus", 0, "used_mib", 1),
)
HTML = "<script>alert(1)</script>"


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize(
    "value", [HTML, float("nan"), float("inf"), 10**400, True, [], {}], ids=lambda one: str(one)[:9]
)
def test_what_is_no_number_is_refused_in_one_line(tmp_path: Path, place: tuple[Any, ...], value: Any) -> None:
    path = write(tmp_path, "magm", 50.0)
    path.write_text(json.dumps(_put(json.loads(path.read_text()), place, value)))
    out = tmp_path / "page.html"
    status, output = compare(str(path), "--out", str(out))
    assert status == 2, output
    assert len(output.splitlines()) == 1 and not out.exists()


@pytest.mark.parametrize("figure", ["1e999", "NaN", "-Infinity", "null"])
def test_a_figure_that_a_chart_needs_is_a_number(tmp_path: Path, figure: str) -> None:
    path = write(tmp_path, "magm", 50.0)
    path.write_text(path.read_text().replace('"makespan_s": 50.0', f'"makespan_s": {figure}'))
    status, output = compare(str(path), "--out", str(tmp_path / "page.html"))
    assert status == 2, output


@pytest.mark.parametrize(
    "place",
    [
        ("trace",),
        ("policy",),
        ("estimates",),
        ("exchange",),
        ("settings", HTML),
        ("seed",),
        ("samples", "gpus", 0, "name"),
        ("machine", "slurm"),
        ("machine", "commit"),
    ],
    ids=str,
)
def test_no_text_of_a_file_becomes_a_part_of_the_page(tmp_path: Path, place: tuple[Any, ...]) -> None:
    files = [write(tmp_path, "magm", 50.0, users=2, seed=1, exchange="nccl"), write(tmp_path, "whole", 200.0)]
    files[0].write_text(json.dumps(_put(json.loads(files[0].read_text()), place, f"{HTML}\"'&")))
    out = tmp_path / "page.html"
    status, output = compare(*map(str, files), "--out", str(out))
    assert status == 0, output
    page = out.read_text()
    assert "<script" not in page and "&lt;script&gt;" in page
