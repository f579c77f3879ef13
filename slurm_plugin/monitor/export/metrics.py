"""Prometheus metrics of one GPU node, for each job on a GPU separately.

Only this module imports prometheus-client, and only when metrics are requested. `gpu`, `UUID`, `Hostname` and
`modelName` are dcgm-exporter's names for the same things, `jobid` is jobstats', so that their series join with RAD's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.monitor.export.board import Board
from slurm_plugin.monitor.export.hook_counts import HookCounts
from slurm_plugin.monitor.node_state import NodeState

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

_GPU = ["gpu", "UUID", "Hostname", "modelName"]
_FROM_ZERO = (
    EventKind.OK,
    EventKind.FAILED,
    EventKind.GPU_OOM,
    EventKind.OVERRUN,
    EventKind.VICTIM,
    EventKind.RUNS_AGAIN,
)
"""Reported before they first happen: Prometheus' increase() does not see a counter's first value."""
_JOB = ["gpu", "UUID", "Hostname", "jobid", "userid"]

_GPU_GAUGES: dict[str, tuple[str, Callable[[GpuReading], float | None]]] = {
    "rad_gpu_memory_usable_bytes": ("Memory that processes can use", lambda r: r.usable_bytes),
    "rad_gpu_memory_used_bytes": ("Memory used by processes", lambda r: r.memory_used_bytes),
    "rad_gpu_smact_ratio": ("SM activity, mean over the window", lambda r: r.smact),
    "rad_gpu_smocc_ratio": ("SM occupancy", lambda r: r.counters.smocc),
    "rad_gpu_tensor_ratio": ("Tensor core activity", lambda r: r.counters.tensor),
    "rad_gpu_dram_ratio": ("Device memory activity", lambda r: r.counters.dram),
    "rad_gpu_graphics_ratio": ("Time in which any kernel ran; misleading", lambda r: r.counters.graphics),
    "rad_gpu_pcie_tx_bytes_per_second": ("Traffic to the host", lambda r: r.counters.pcie_tx_bytes_s),
    "rad_gpu_pcie_rx_bytes_per_second": ("Traffic from the host", lambda r: r.counters.pcie_rx_bytes_s),
    "rad_gpu_nvlink_tx_bytes_per_second": ("Traffic to other GPUs", lambda r: r.counters.nvlink_tx_bytes_s),
    "rad_gpu_nvlink_rx_bytes_per_second": ("Traffic from other GPUs", lambda r: r.counters.nvlink_rx_bytes_s),
    "rad_gpu_power_watts": ("Draw of the board", lambda r: r.counters.power_w),
    "rad_gpu_ecc_uncorrected": ("Uncorrectable memory errors", lambda r: r.counters.ecc_uncorrected),
    "rad_gpu_last_xid": ("Last Xid error reported", lambda r: r.counters.xid),
    "rad_gpu_healthy": ("0 after an error that needs a reset", lambda r: int(r.healthy)),
    "rad_gpu_mig": ("1 if the GPU is partitioned (MIG)", lambda r: int(r.mig)),
}


class NodeMetrics(Collector):
    """The monitor's latest state, as Prometheus reads it."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        seen, host = self._board.seen(), self._board.host
        yield from _of_gpus(seen, host)
        yield from _of_jobs(seen, host)
        yield from _of_hooks(self._board.counts(), host)


def metrics_app(board: Board) -> WSGIApplication:
    """Return the WSGI application that answers a scrape."""
    registry = CollectorRegistry()
    registry.register(NodeMetrics(board))
    return make_wsgi_app(registry)


def _of_gpus(seen: NodeState, host: str) -> Iterator[Metric]:
    for name, (text, value_of) in _GPU_GAUGES.items():
        gauge = GaugeMetricFamily(name, text, labels=_GPU)
        for reading in seen.readings:
            value = value_of(reading)
            if value is not None:
                gauge.add_metric(_labels(reading, host), value)
        yield gauge
    source = GaugeMetricFamily(
        "rad_gpu_smact_source", "1; the source of SM activity", labels=[*_GPU, "source"]
    )
    energy = CounterMetricFamily("rad_gpu_energy_joules", "Energy since the driver was loaded", labels=_GPU)
    booked = GaugeMetricFamily("rad_gpu_memory_booked_bytes", "Memory booked by its jobs", labels=_GPU)
    unmanaged = GaugeMetricFamily(
        "rad_gpu_memory_unmanaged_bytes", "Memory used outside of jobs", labels=_GPU
    )
    jobs = GaugeMetricFamily("rad_gpu_jobs", "Jobs with an allocation on it", labels=[*_GPU, "kind"])
    for reading in seen.readings:
        labels, allocation = _labels(reading, host), seen.ledger.on(reading.uuid)
        source.add_metric([*labels, reading.smact_source or "none"], 1)
        if reading.counters.energy_j is not None:
            energy.add_metric(labels, reading.counters.energy_j)
        booked.add_metric(labels, sum(one.booked_bytes for one in allocation))
        outside = [p.memory_bytes or 0 for p in reading.processes if p.pid not in seen.owners]
        unmanaged.add_metric(labels, sum(outside))
        for kind in ("shared", "whole"):
            jobs.add_metric([*labels, kind], sum(one.kind == kind for one in allocation))
    yield from (source, energy, booked, unmanaged, jobs)


def _labels(reading: GpuReading, host: str) -> list[str]:
    return [str(reading.index), reading.uuid, host, reading.name]


def _of_jobs(seen: NodeState, host: str) -> Iterable[Metric]:
    booked = GaugeMetricFamily("rad_job_memory_booked_bytes", "Memory booked by the job", labels=_JOB)
    estimate = GaugeMetricFamily("rad_job_memory_estimate_bytes", "Estimated memory of the job", labels=_JOB)
    used = GaugeMetricFamily("rad_job_memory_used_bytes", "Memory used by the job", labels=_JOB)
    peak = GaugeMetricFamily("rad_job_memory_peak_bytes", "Peak memory of the job on one GPU", labels=_JOB)
    smact = GaugeMetricFamily("rad_job_smact_ratio", "Its share of SM activity, mean", labels=_JOB)
    idle = GaugeMetricFamily("rad_job_idle_seconds", "Time since an idle job computed anything", labels=_JOB)
    index_of = {reading.uuid: reading.index for reading in seen.readings}
    for allocation in seen.ledger.allocations:
        usage = seen.usages.get(allocation.job_id)
        for uuid in allocation.gpus:
            labels = [
                str(index_of.get(uuid, "")),
                uuid,
                host,
                str(allocation.job_id),
                str(allocation.user_id),
            ]
            booked.add_metric(labels, allocation.booked_bytes)
            used.add_metric(labels, _used_by(allocation.job_id, uuid, seen.readings, seen.owners))
            if allocation.estimate_bytes is not None:
                estimate.add_metric(labels, allocation.estimate_bytes)
            if usage is not None and usage.peak_bytes is not None:
                peak.add_metric(labels, usage.peak_bytes)
            if usage is not None and usage.mean_smact is not None:
                smact.add_metric(labels, usage.mean_smact)
            if allocation.job_id in seen.idle:
                idle.add_metric(labels, seen.idle[allocation.job_id])
    return (booked, estimate, used, peak, smact, idle)


def _used_by(job_id: int, uuid: str, readings: Sequence[GpuReading], owners: Mapping[int, int]) -> int:
    processes = [process for reading in readings if reading.uuid == uuid for process in reading.processes]
    return sum(process.memory_bytes or 0 for process in processes if owners.get(process.pid) == job_id)


def _of_hooks(counts: HookCounts, host: str) -> Iterator[Metric]:
    events = CounterMetricFamily(
        "rad_hook_events", "Events of hooks", labels=["Hostname", "hook", "event", "policy"]
    )
    every = {("epilog", kind.value, ""): 0 for kind in _FROM_ZERO} | counts.events
    for key, count in sorted(every.items()):
        events.add_metric([host, *key], count)
        if key in counts.latest:
            job_id, time_s = counts.latest[key]
            last = Exemplar({"jobid": str(job_id)}, 1.0, time_s)
            events.samples[-1] = events.samples[-1]._replace(exemplar=last)
    times = HistogramMetricFamily("rad_hook_seconds", "Duration of hooks", labels=["Hostname", "hook"])
    for hook, histogram in sorted(counts.durations.items()):
        times.add_metric(
            [host, hook], [(str(edge), count) for edge, count in histogram.cumulative()], histogram.sum_s
        )
    yield from (events, times)
