"""Dashboards and alert rules ask for metrics and labels that exist, and hold together."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeClock
from paths import CHECKOUT

from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.logs.events import Entry, EventKind, LogEvent
from slurm_plugin.core.records.gpu import GpuCounters, GpuProcess, GpuReading
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.monitor.export.board import Board
from slurm_plugin.monitor.export.hook_counts import HookCounts
from slurm_plugin.monitor.node_state import NodeState
from slurm_plugin.monitor.window import JobUsage
from slurm_plugin.slurm.queries.queue import WaitingJob

metrics = pytest.importorskip("slurm_plugin.monitor.export.metrics")
DASHBOARDS = sorted((CHECKOUT / "gres_conf" / "grafana").glob("*.json"))
RULES = CHECKOUT / "gres_conf" / "prometheus" / "rad.rules.yml"
OF_PROMETHEUS = {"instance", "job", "le", "alertname"}
GIB = 2**30


def reported() -> Iterator[Any]:
    """Yield every metric that rad-monitor and `rad metrics` can tell."""
    from slurm_plugin.admin import metrics as controller_metrics

    counts = HookCounts(Path("/nonexistent"))
    for hook, kind in (
        ("prolog", EventKind.PLACED),
        ("prolog", EventKind.END),
        ("radd", EventKind.SUBMITTED),
    ):
        event = LogEvent(kind=kind)
        counts._count(Entry(time_s=0.0, hook=hook, job_id=1, restart=0, after_ms=1, event=event))
    board = Board(counts)
    reading = GpuReading(
        uuid="GPU-a",
        index=0,
        name="H100",
        memory_total_bytes=GIB,
        memory_used_bytes=0,
        time_s=0.0,
        smact=0.5,
        processes=(GpuProcess(pid=1, memory_bytes=5),),
        counters=GpuCounters(
            **dict.fromkeys(GpuCounters.__dataclass_fields__, 1),  # type: ignore[arg-type]
        ),
    )
    allocation = Allocation(
        job_id=7,
        user_id=1,
        kind="shared",
        gpus=("GPU-a",),
        gpu_indices=(0,),
        booked_bytes=5,
        created_s=0.0,
        estimate_bytes=5,
    )
    usage = JobUsage(job_id=7, first_s=0, last_s=1, peak_bytes=5, mean_smact=0.5)
    board.show(
        NodeState(
            readings=(reading,), usages={7: usage}, owners={1: 7}, ledger=Ledger(allocations=(allocation,))
        )
    )
    yield from metrics.NodeMetrics(board).collect()
    waiting = WaitingJob(
        job_id=1, user_id=1, partition="gpu", gres="gpu:1", reason="", priority=1, restarts=0, submit_s=None
    )
    seen = controller_metrics.ControllerState(
        time_s=0.0, radd_up=True, radd_answer_s=0.1, radd_leaves_jobs=False, undecided=0, waiting=(waiting,)
    )
    yield from controller_metrics.ControllerMetrics(lambda: seen, counts, FakeClock()).collect()


@pytest.fixture(scope="module")
def labels() -> dict[str, set[str]]:
    """Return the labels of every sample by its name."""
    found: dict[str, set[str]] = {}
    for metric in reported():
        for sample in metric.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def panels(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["panels"]
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """Yield every expression with where it stands."""
    for path in DASHBOARDS:
        for panel in panels(path):
            for target in panel["targets"]:
                yield f"{path.name}: {panel['title']}", target["expr"]
                yield f"{path.name}: {panel['title']}", target["legendFormat"]
        for one in json.loads(path.read_text())["templating"]["list"]:
            yield f"{path.name}: ${one['name']}", one["query"]
    text = re.sub(r"(?m)#.*$", "", RULES.read_text())
    for block in text.split("- alert: ")[1:]:
        yield (
            RULES.name,
            re.sub(r"summary:|description:|severity:\s*\w+", "", block).partition("annotations:")[0],
        )


def labels_in(text: str) -> set[str]:
    bare = re.sub(r'"[^"]*"', '""', text)
    found = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"\"", bare))
    for group in re.findall(r"\b(?:by|on|ignoring|without)\s*\(([^)]*)\)", bare):
        found |= {name.strip() for name in group.split(",") if name.strip()}
    found |= set(re.findall(r"label_values\(\w+, (\w+)\)", text))
    return found | set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", text))


def test_they_ask_for_what_exists(labels: dict[str, set[str]]):
    known = set().union(*labels.values()) | OF_PROMETHEUS
    for where, text in expressions():
        queried = set(re.findall(r"\brad_\w+", text))
        assert queried <= labels.keys(), (where, queried - labels.keys())
        assert labels_in(text) <= known, (where, labels_in(text) - known)


def test_every_metric_of_the_fleet_has_a_place():
    text = "".join(text for _, text in expressions())
    for name in (
        "rad_radd_up",
        "rad_radd_leaves_jobs",
        "rad_queue_known",
        "rad_gpu_jobs",
        "rad_queue_wait_mean_seconds",
    ):
        assert name in text


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_a_dashboard_holds_together(path: Path):
    board = json.loads(path.read_text())
    names = {one["name"] for one in board["templating"]["list"]}
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs) and panel["title"]
        for target in panel["targets"]:
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= names
            assert target["expr"].count("(") == target["expr"].count(")")
    assert board["uid"] and len({one["uid"] for one in (json.loads(p.read_text()) for p in DASHBOARDS)}) == 2
