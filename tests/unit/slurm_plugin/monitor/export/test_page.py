"""The web page of nodes: what it shows, and that no text gets into its markup."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.export import web
from slurm_plugin.monitor.export.board import Board
from slurm_plugin.monitor.export.hook_counts import HookCounts
from slurm_plugin.monitor.export.page import page
from slurm_plugin.monitor.export.status import GpuStatus, Happened, JobStatus, NodeStatus

NOW_S = 1_772_366_400.0


class Reader(HTMLParser):
    """The elements of a page with their attributes, and its visible text."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.words: list[str] = []
        self.feed(content.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def status(text: str = "H100", *, idle_s: float | None = None) -> NodeStatus:
    job = JobStatus(
        job_id=7,
        user_id=1000,
        kind=text,
        booked_bytes=12 * GIB,
        estimate_bytes=None,
        used_bytes=9 * GIB,
        peak_bytes=None,
        smact=0.25,
        idle_s=idle_s,
    )
    gpu = GpuStatus(
        index=0,
        uuid=text,
        name=text,
        state=text,
        usable_bytes=40 * GIB,
        used_bytes=10 * GIB,
        booked_bytes=12 * GIB,
        unmanaged_bytes=0,
        smact=0.5,
        smact_source=text,
        averaged=True,
        jobs=(job,),
    )
    happened = (Happened(time_s=NOW_S, job_id=7, event=text),)
    return NodeStatus(host=text, time_s=NOW_S, gpus=(gpu,), happened=happened)


def test_it_shows_gpus_jobs_booked_and_used() -> None:
    found = Reader(page([("gpu1", status(), ""), ("gpu2", None, "no answer in 1 s")], time_s=NOW_S)).text
    assert "GPUs of 2 nodes 1 of 1 GPU busy, jobs on them: 1" in found
    assert "gpu1 0 H100 H100 10.0 GiB 12.0 GiB 40.0 GiB 0.50" in found
    assert "gpu2 no answer in 1 s" in found
    assert "7 1000 gpu1 0 H100 9.0 GiB 12.0 GiB - 0.25" in found


def test_an_idle_job_is_named() -> None:
    assert "idle for 30 min" in Reader(page([("gpu1", status(idle_s=1800), "")], time_s=NOW_S)).text


def test_a_browser_loads_it_again() -> None:
    assert b'http-equiv="refresh"' in page([("gpu1", None, "")], time_s=NOW_S)


HOSTILE = st.sampled_from(
    ["<script>alert(1)</script>", '"><img src=x onerror=a>', "'&lt;</td>", "\ud800</title>"]
)


@given(text=HOSTILE | st.text(max_size=40), trouble=HOSTILE | st.text(min_size=1, max_size=40))
def test_no_text_becomes_markup(text: str, trouble: str) -> None:
    plain = Reader(page([("a", status("b"), "c")], time_s=NOW_S)).elements
    assert Reader(page([(text, status(text), trouble)], time_s=NOW_S)).elements == plain


def test_there_is_no_script_and_nothing_is_loaded() -> None:
    elements = Reader(page([("gpu1", status(), "")], time_s=NOW_S)).elements
    assert not {"script", "link", "img", "form", "a", "iframe"} & {tag for tag, _ in elements}
    assert not {
        name for _, names in elements for name in names if name in ("src", "href") or name[:2] == "on"
    }


def test_rad_monitor_serves_it(tmp_path: Path) -> None:
    board = Board(HookCounts(tmp_path))
    answered: dict[str, Any] = {}

    def start(status: str, headers: list[tuple[str, str]]) -> None:
        answered.update(status=status, **dict(headers))

    environ: dict[str, Any] = {"PATH_INFO": "/"}
    setup_testing_defaults(environ)
    body = b"".join(web._app(board)(environ, start))  # type: ignore[arg-type]
    assert answered["status"] == "200 OK" and answered["Content-Type"].startswith("text/html")
    assert "default-src 'none'" in answered["Content-Security-Policy"]
    assert int(answered["Content-Length"]) == len(body) and board.host.encode() in body
