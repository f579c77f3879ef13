"""Nodes as a web page, for people without a terminal: one HTML text without script, all of it escaped.

rad-monitor serves its own node at /, and `rad top --html` prints all nodes. It shows what /status and /metrics show:
job ids and user ids, no names and no text of users.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from html import escape

from slurm_plugin.core.units import counted, human
from slurm_plugin.monitor.export.status import GpuStatus, JobStatus, NodeStatus

REFRESH_S = 5
HEADERS = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)
_STYLE = """
:root{color-scheme:light dark}body{font:15px/1.45 system-ui,sans-serif;max-width:1200px;margin:1.5em auto;padding:0 1em}
table{border-collapse:collapse;width:100%}th,td{padding:.3em .8em .3em 0;text-align:left;vertical-align:top}
tr{border-bottom:1px solid #8884}td:nth-child(n+4),th:nth-child(n+4){text-align:right;white-space:nowrap}
.bar{position:relative;height:.7em;min-width:9em;background:#8883;border-radius:3px;overflow:hidden}
.bar i,.bar b{position:absolute;inset:0 auto 0 0;background:#4477aa66}.bar b{background:#4477aa}
.warn{color:#c33;font-weight:600}small{opacity:.75}
"""
_HEADS = ("node", "GPU", "memory (booked: light)", "used", "booked", "usable", "SM activity")
_JOB_HEADS = ("job", "user id", "GPU", "kind", "used", "booked", "peak", "SM activity")

Named = tuple[str, NodeStatus | None, str]
"""A node's name, its state (None: unknown), and why that is not fresh, or ""."""


def page(nodes: Sequence[Named], *, time_s: float) -> bytes:
    """Return the page.

    Args:
        nodes: The nodes.
        time_s: When they were read, seconds since the epoch.
    """
    return "\n".join(_parts(nodes, time_s)).encode("utf-8", "replace")


def _parts(nodes: Sequence[Named], time_s: float) -> Iterator[str]:
    gpus = [gpu for _, status, _ in nodes if status for gpu in status.gpus]
    jobs = {job.job_id for gpu in gpus for job in gpu.jobs}
    title = nodes[0][0] if len(nodes) == 1 else f"{len(nodes)} nodes"
    time = datetime.fromtimestamp(time_s).astimezone().isoformat(sep=" ", timespec="seconds")
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="refresh" content="{REFRESH_S}">'
    yield '<meta name="viewport" content="width=device-width">'
    yield f"<title>GPUs of {escape(title)}</title><style>{_STYLE}</style></head><body>"
    yield f"<h1>GPUs of {escape(title)}</h1>"
    busy = sum(bool(gpu.jobs) for gpu in gpus)
    yield f"<p>{busy} of {counted(len(gpus), 'GPU')} busy, jobs on them: {len(jobs)} <small>{escape(time)}</small></p>"
    yield f"<table><thead>{_row('th', _HEADS)}</thead><tbody>"
    for name, status, trouble in nodes:
        if trouble or status is None or not status.gpus:
            why = escape(trouble or "no GPUs")
            yield f'<tr><td>{escape(name)}</td><td colspan="6" class="warn">{why}</td></tr>'
        for gpu in status.gpus if status else ():
            yield _gpu(name, gpu)
    yield f"</tbody></table><h2>Jobs</h2><table><thead>{_row('th', _JOB_HEADS)}</thead><tbody>"
    for name, status, _ in nodes:
        for gpu in status.gpus if status else ():
            for job in gpu.jobs:
                yield _job(name, gpu, job)
    yield "</tbody></table></body></html>\n"


def _gpu(node: str, gpu: GpuStatus) -> str:
    whole = max(gpu.usable_bytes, 1)
    booked, used = (min(100.0, 100.0 * part / whole) for part in (gpu.booked_bytes, gpu.used_bytes))
    bar = f'<div class="bar"><i style="width:{booked:.1f}%"></i><b style="width:{used:.1f}%"></b></div>'
    state = "" if gpu.state == "ok" else f' <span class="warn">{escape(gpu.state)}</span>'
    cells = (human(gpu.used_bytes), human(gpu.booked_bytes), human(gpu.usable_bytes), _share(gpu.smact))
    name = f"{gpu.index} <small>{escape(gpu.name)}</small>{state}"
    return f"<tr><td>{escape(node)}</td><td>{name}</td><td>{bar}</td>{_cells('td', cells)}</tr>"


def _job(node: str, gpu: GpuStatus, job: JobStatus) -> str:
    used, peak = ("-" if size is None else human(size) for size in (job.used_bytes, job.peak_bytes))
    activity = _share(job.smact) if job.idle_s is None else f"idle for {job.idle_s / 60:.0f} min"
    where = f"{node} {gpu.index}"
    sizes = (used, human(job.booked_bytes), peak, activity)
    return _row("td", (str(job.job_id), str(job.user_id), where, job.kind, *sizes))


def _row(tag: str, texts: Sequence[str]) -> str:
    return f"<tr>{_cells(tag, texts)}</tr>"


def _cells(tag: str, texts: Sequence[str]) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.2f}"
