"""The rows of each screen: their cells and sort keys."""

from __future__ import annotations

from datetime import datetime

from slurm_plugin.admin.top.cells import Bar, ScreenLine, duration
from slurm_plugin.admin.top.fleet import Fleet, NodeAnswer
from slurm_plugin.core.text import one_line
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.export.status import GpuStatus, JobStatus

_LONGEST_CELL = 200


def gpus(fleet: Fleet) -> list[ScreenLine]:
    """Return a row for each GPU, and one for each node without any."""
    found = []
    for node in fleet.nodes:
        gpus = node.status.gpus if node.status else ()
        found += [_gpu(fleet, node, gpu) for gpu in gpus]
        if not gpus:
            parts = node.trouble or "no GPUs"
            found.append(
                ScreenLine(
                    cells=(node.name, "", "", "", parts),
                    keys=(node.name, -1.0, -1.0, -1.0, -1.0),
                    warns=bool(node.trouble),
                )
            )
    return found


def _gpu(fleet: Fleet, node: NodeAnswer, gpu: GpuStatus) -> ScreenLine:
    whole = max(gpu.usable_bytes, 1)
    flag = "!" if gpu.smact_source == "nvml-utilisation" else ""
    parts = [
        f"{job.job_id} {fleet.user(job.user_id)}{' whole' if job.kind == 'whole' else ''} {_gib(job.used_bytes)}G"
        + ("" if job.idle_s is None else f" idle {duration(job.idle_s)}")
        for job in gpu.jobs
    ]
    if gpu.unmanaged_bytes:
        parts.append(f"outside of jobs {_gib(gpu.unmanaged_bytes)}G")
    if gpu.state != "ok":
        parts.insert(0, gpu.state.upper())
    if node.trouble:
        parts.insert(0, f"[{node.trouble}]")
    return ScreenLine(
        cells=(
            node.name,
            str(gpu.index),
            Bar(
                full=gpu.used_bytes / whole,
                light=gpu.booked_bytes / whole,
                text=f"{_gib(gpu.used_bytes)}/{_gib(gpu.booked_bytes)}/{_gib(gpu.usable_bytes)}G",
            ),
            Bar(full=gpu.smact or 0.0, text=_share(gpu.smact) + flag),
            ", ".join(parts),
        ),
        keys=(node.name, float(gpu.index), gpu.used_bytes / whole, _number(gpu.smact), float(len(gpu.jobs))),
        users=tuple(fleet.user(job.user_id) for job in gpu.jobs),
        warns=bool(node.trouble) or gpu.state == "unhealthy",
    )


def jobs(fleet: Fleet) -> list[ScreenLine]:
    """Return a row for each job on each of its GPUs."""
    return [_job(fleet, node, gpu, job) for node, gpu, job in fleet.jobs()]


def _job(fleet: Fleet, node: NodeAnswer, gpu: GpuStatus, job: JobStatus) -> ScreenLine:
    user = fleet.user(job.user_id)
    booked = max(job.booked_bytes, 1)
    used = job.used_bytes or 0
    return ScreenLine(
        cells=(
            str(job.job_id),
            user,
            node.name,
            str(gpu.index),
            job.kind,
            _gib(job.estimate_bytes),
            Bar(full=used / booked, text=f"{_gib(job.used_bytes)}/{_gib(job.booked_bytes)}G"),
            _gib(job.peak_bytes),
            _share(job.smact),
            "" if job.idle_s is None else duration(job.idle_s),
        ),
        keys=(
            float(job.job_id),
            user,
            node.name,
            float(gpu.index),
            job.kind,
            _number(job.estimate_bytes),
            float(used),
            _number(job.peak_bytes),
            _number(job.smact),
            _number(job.idle_s),
        ),
        users=(user,),
        warns=used > booked or job.idle_s is not None,
    )


def users(fleet: Fleet) -> list[ScreenLine]:
    """Return a row for each user with a running or waiting job."""
    by_user: dict[int, list[tuple[GpuStatus, JobStatus]]] = {}
    for _, gpu, job in fleet.jobs():
        by_user.setdefault(job.user_id, []).append((gpu, job))
    waiting: dict[int, int] = {}
    for one in fleet.waiting:
        waiting[one.user_id] = waiting.get(one.user_id, 0) + 1
    found = []
    for user_id in by_user.keys() | waiting.keys():
        own = by_user.get(user_id, [])
        figures = (
            float(len({job.job_id for _, job in own})),
            float(len({gpu.uuid for gpu, _ in own})),
            sum(job.booked_bytes for _, job in own) / GIB,
            sum(job.used_bytes or 0 for _, job in own) / GIB,
            sum(job.smact or 0.0 for _, job in own),
            float(waiting.get(user_id, 0)),
        )
        name = fleet.user(user_id)
        shown = (f"{figures[0]:.0f}", f"{figures[1]:.0f}", f"{figures[2]:.1f}", f"{figures[3]:.1f}")
        cells = (name, *shown, f"{figures[4]:.2f}", f"{figures[5]:.0f}", "")
        found.append(ScreenLine(cells=cells, keys=(name, *figures, ""), users=(name,)))
    return found


def queue(fleet: Fleet) -> list[ScreenLine]:
    """Return a row for each job that waits for GPUs."""
    found = []
    for job in fleet.waiting:
        waited_s = 0.0 if job.submit_s is None else max(0.0, fleet.time_s - job.submit_s)
        user = fleet.user(job.user_id)
        cells = (
            str(job.job_id),
            user,
            one_line(job.partition, _LONGEST_CELL),
            one_line(job.gres.replace("gres/", "").replace("gres:", ""), _LONGEST_CELL),
            "-" if job.submit_s is None else duration(waited_s),
            str(job.priority),
            str(job.restarts),
            one_line(job.reason, _LONGEST_CELL),
        )
        numbers = (waited_s, float(job.priority), float(job.restarts))
        keys = (float(job.job_id), user, cells[2], cells[3], *numbers, cells[7])
        found.append(ScreenLine(cells=cells, keys=keys, users=(user,)))
    return found


def happened(fleet: Fleet) -> list[ScreenLine]:
    """Return a row for each recent action on a job."""
    owners = {job.job_id: fleet.user(job.user_id) for _, _, job in fleet.jobs()}
    owners |= {job.job_id: fleet.user(job.user_id) for job in fleet.waiting}
    found = []
    for node, one in fleet.happened():
        user = owners.get(one.job_id, "")
        time = datetime.fromtimestamp(one.time_s).strftime("%H:%M:%S")
        cells = (time, node.name, str(one.job_id), user, one_line(one.event, _LONGEST_CELL))
        keys = (one.time_s, node.name, float(one.job_id), user, cells[4])
        found.append(ScreenLine(cells=cells, keys=keys, users=(user,) if user else ()))
    return found


def _gib(n_bytes: int | None) -> str:
    return (
        "-" if n_bytes is None else f"{n_bytes / GIB:.1f}" if n_bytes < 100 * GIB else f"{n_bytes / GIB:.0f}"
    )


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.2f}"


def _number(value: float | None) -> float:
    return -1.0 if value is None else float(value)
