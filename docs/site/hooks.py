"""What MkDocs needs beyond mkdocs.yml: pages that lie elsewhere in the repository, and a reference made of code.

The manual is written for the repository; nothing of it is repeated here. Links are followed from where a page lies
there: to a page of the site; for what the site does not have, to the file's name.
"""

from __future__ import annotations

import base64
import json
import os
import posixpath
import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from prometheus_client.core import Metric
from replay.report.page import page as replay_page
from replay.report.runs import read_runs

from slurm_plugin.admin.schema import schema
from slurm_plugin.core.process.run import run
from slurm_plugin.monitor.export.board import Board
from slurm_plugin.monitor.export.hook_counts import HookCounts
from slurm_plugin.monitor.export.metrics import NodeMetrics
from tools import messages

CHECKOUT = Path(__file__).resolve().parents[2]
ELSEWHERE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "gres_conf/README.md": "configuration.md",
    "tests/golden/doctor/faults.md": "doctor.md",
}
"""Pages that lie outside docs/, and where they stand in the site."""
REPLAYS = CHECKOUT / "docs" / "results" / "replay"
"""The recorded replays, of which the site has a page for each trace."""
REPLAYS_MARK = "<!-- replays -->"
"""Where results.md links to these pages."""
REPORTS = "measurements/"
"""Reports of single measurements: pages of the site, but neither in its navigation nor in its search."""
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s:#]+)(#[^)\s]*)?\)")
COMMANDS = """\
# Commands

Each ends with status 0 if all is well, 1 after a finding, 2 for wrong usage or a wrong file, 3 for an internal error.

::: mkdocs-click
    :module: slurm_plugin.admin.cli
    :command: main
    :prog_name: rad
    :depth: 1
    :style: table
    :list_subcommands: True

::: mkdocs-click
    :module: gpumemnet.cli.rad_estimate
    :command: command
    :prog_name: rad-estimate
    :depth: 1
    :style: table

::: mkdocs-click
    :module: slurm_plugin.radd.__main__
    :command: main
    :prog_name: radd
    :depth: 1
    :style: table

## rad-monitor

"""
PYTHON = """\
# Python

## In the code that trains

::: gpumemnet.tracing.saved.calls
    options:
      show_root_heading: false
      show_root_toc_entry: false

## The decisions

Each is a pure function of records and a clock; ARCHITECTURE.md says which program applies it.

::: slurm_plugin.core.booking.decide.decide
::: slurm_plugin.core.placement.choose.choose_gpu
::: slurm_plugin.core.recovery.classify.classify
::: slurm_plugin.core.recovery.classify.next_attempt

## The records

::: slurm_plugin.core.records.submission
    options:
      show_root_heading: false
      show_root_toc_entry: false
      show_if_no_docstring: false

::: slurm_plugin.core.records.node
    options:
      show_root_heading: false
      show_root_toc_entry: false
      show_if_no_docstring: false
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that do not lie in docs/."""
    for source, page in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(CHECKOUT / source).read_text(encoding="utf-8")))
    for name, text in {
        "commands.md": COMMANDS + _monitor_help(),
        "rad-toml.md": _rad_toml(schema()),
        "rad.schema.json": json.dumps(schema(), indent=1),
        "metrics.md": _metrics(),
        "messages.md": messages.page(),
        "python.md": PYTHON,
    }.items():
        files.append(File.generated(config, f"reference/{name}", content=text))
    for trace, html in _replay_pages().items():
        files.append(File.generated(config, f"replays/{trace}.html", content=html))
    return files


@event_priority(100)  # before the plugin that plays recordings
def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links of the repository links of the site."""
    uri = page.file.src_uri
    origins = {at: source for source, at in ELSEWHERE.items()}
    origin = origins.get(uri, f"docs/{uri}")

    def followed(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        at = ELSEWHERE.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if at is not None and files.get_file_from_path(at) is not None:
            if words.endswith(".md"):  # in the repository a file, here a page
                words = (CHECKOUT / path).read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
            return f"[{words}]({posixpath.relpath(at, posixpath.dirname(uri) or '.')}{anchor})"
        if (CHECKOUT / path).exists():
            return words if path in words else f"{words} (`{path}`)"
        return match[0]  # it leads nowhere, and the strict build says so

    if origin == "README.md":
        markdown = markdown.replace("](docs/img/", "](img/")
        page.meta["hide"] = ["navigation"]  # of one page
    if uri.startswith(REPORTS):
        page.meta["search"] = {"exclude": True}
    markdown = markdown.replace(REPLAYS_MARK, _replay_links(files))
    if uri == "user.md":
        markdown = markdown.replace("\n## ", f"\n{_recording()}\n## ", 1)
    return _LINK.sub(followed, markdown)


def _replay_pages() -> dict[str, str]:
    """Return the page that bench/replay/report makes of the recorded replays of each trace, by the trace's name."""
    runs = read_runs(sorted(REPLAYS.glob("*.json.xz")))
    return {trace: replay_page(list(some)) for trace, some in groupby(runs, key=lambda run: run.trace)}


def _replay_links(files: Files) -> str:
    pages = [file.src_uri for file in files if file.src_uri.startswith("replays/")]
    links = ", ".join(f"[{posixpath.basename(uri).removesuffix('.html')}]({uri})" for uri in pages)
    return f"Tables and charts of every run, a page for each trace: {links}."


def _recording() -> str:
    """Return the player of a user's first job, with the recording inside, so that it plays from a folder, too."""
    cast = (CHECKOUT / "docs" / "img" / "first_job.cast").read_bytes()
    head = json.loads(cast.splitlines()[0])
    options = {
        "file": f"data:text/plain;base64,{base64.b64encode(cast).decode()}",
        "title": head["title"],
        "cols": head["width"],
        "rows": head["height"],
        "start_at": "0:00",
        "mkap_theme": "none",
        "terminal_font_family": "monospace",
    }
    words = "Recorded on a private Slurm with simulated GPUs (`python3 -m lab record`); the typing alone is made up."
    return f"```asciinema-player\n{json.dumps(options)}\n```\n\n{words}\n"


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Take out what mkdocs-click 0.9 says of an option of click 8.3 without default; show the recording's first job."""
    html = html.replace("<code>Sentinel.UNSET</code>", "")
    return html.replace('startAt: "0:00"', 'poster: "npt:0:09"')  # which the plugin has no option for


def _monitor_help() -> str:
    argv = [sys.executable, "-m", "slurm_plugin.monitor.daemon", "--help"]
    env = {**os.environ, "COLUMNS": "100"}
    return f"```text\n{run(argv, timeout_s=60, env=env)}```\n"


def _rad_toml(tree: dict[str, Any]) -> str:
    lines = [
        "# rad.toml",
        "",
        "Every key, made from the code that checks them. Editors take [the schema](rad.schema.json) (`rad schema`).",
        "`rad install` writes a file whose comments explain the same keys by what an admin wants.",
    ]
    for title, table in _tables("", tree):
        lines += ["", f"## {title}", "", "| key | values | default | meaning |", "|---|---|---|---|"]
        for name, made in table["properties"].items():
            if made.get("type") != "object":
                default = json.dumps(made["default"])
                cells = (f"`{name}`", _values(made), f"`{default}`", made.get("description", ""))
                lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, ""])


def _tables(name: str, table: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield (f"[{name}]" if name else "At the top"), table
    for key, made in table["properties"].items():
        if key == "partition":
            yield "[partition.NAME]", made["additionalProperties"]
        elif (
            made.get("type") == "object" and key != "partition_defaults"
        ):  # its keys are those of a partition
            yield from _tables(key, made)


def _values(made: dict[str, Any]) -> str:
    if "anyOf" in made:
        return " or ".join(map(_values, made["anyOf"]))
    if "enum" in made:
        return ", ".join(f"`{json.dumps(each)}`" for each in made["enum"])
    return {"boolean": "true, false", "integer": "whole number", "number": "number", "string": "text"}[
        made["type"]
    ]


def _metrics() -> str:
    board = Board(HookCounts(Path("/nonexistent")))
    rows = [_metric_row(metric) for metric in NodeMetrics(board).collect()]
    head = (
        "# Metrics\n\nWhat rad-monitor serves for Prometheus ([how](../monitoring.md)), as the code declares it.\n\n"
        "| metric | type | labels | meaning |\n|---|---|---|---|\n"
    )
    return head + "\n".join(rows) + "\n"


def _metric_row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in getattr(metric, "_labelnames", ()))
    suffix = "_total" if metric.type == "counter" else ""
    return f"| `{metric.name}{suffix}` | {metric.type} | {labels} | {metric.documentation} |"
