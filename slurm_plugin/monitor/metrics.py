"""Prometheus metrics of one GPU node, with every job on a GPU beside the others.

prometheus-client is imported here alone, and only when somebody asks for metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.gpu import GpuReading
from slurm_plugin.core.ledger import Ledger
from slurm_plugin.monitor.hook_counts import HookCounts
from slurm_plugin.monitor.window import JobUsage

_GPU = ["gpu", "index"]
_JOB = ["gpu", "job", "user_id"]

_GPU_GAUGES: dict[str, tuple[str, Callable[[GpuReading], float | None]]] = {
    "rad_gpu_memory_usable_bytes": ("Memory that processes can have in all", lambda r: r.usable_bytes),
    "rad_gpu_memory_used_bytes": ("Memory that processes hold", lambda r: r.memory_used_bytes),
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
    "rad_gpu_last_xid": ("Last Xid error heard", lambda r: r.counters.xid),
    "rad_gpu_healthy": ("0 after an error that needs a reset", lambda r: int(r.healthy)),
    "rad_gpu_mig": ("1 if the card is partitioned", lambda r: int(r.mig)),
}


class NodeMetrics(Collector):
    """What the monitor saw last, as Prometheus asks for it."""

    def __init__(self, counts: HookCounts) -> None:
        self._counts = counts
        self._lock = Lock()
        self._readings: Sequence[GpuReading] = ()
        self._usages: Mapping[int, JobUsage] = {}
        self._owners: Mapping[int, int] = {}
        self._ledger = Ledger()

    def show(
        self,
        readings: Sequence[GpuReading],
        usages: Mapping[int, JobUsage],
        owners: Mapping[int, int],
        ledger: Ledger,
    ) -> None:
        """Take over the state after one sample."""
        with self._lock:
            self._readings, self._owners, self._ledger = readings, owners, ledger
            self._usages = dict(usages)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        with self._lock:
            readings, usages, owners, ledger = self._readings, self._usages, self._owners, self._ledger
        yield from _of_gpus(readings)
        yield from _of_jobs(readings, usages, owners, ledger)
        yield from _of_hooks(self._counts)


def serve(address: str, log: Path) -> NodeMetrics:
    """Serve metrics over HTTP in a thread of its own.

    Args:
        address: "PORT" or "ADDRESS:PORT"; a bare port is served on this machine alone.
        log: paths.log, whose hook logs are counted.

    Raises:
        ConfigError: The address cannot be used.
    """
    host, _, port = address.rpartition(":")
    registry = CollectorRegistry()
    metrics = NodeMetrics(HookCounts(log))
    registry.register(metrics)
    try:
        start_http_server(int(port), addr=host or "127.0.0.1", registry=registry)
    except (OSError, ValueError, OverflowError) as exc:
        raise ConfigError(f"--metrics {address}: {exc}; write it like 9835 or 0.0.0.0:9835") from exc
    return metrics


def _of_gpus(readings: Sequence[GpuReading]) -> Iterator[Metric]:
    for name, (text, value_of) in _GPU_GAUGES.items():
        gauge = GaugeMetricFamily(name, text, labels=_GPU)
        for reading in readings:
            value = value_of(reading)
            if value is not None:
                gauge.add_metric([reading.uuid, str(reading.index)], value)
        yield gauge
    source = GaugeMetricFamily("rad_gpu_smact_source", "1; who tells SM activity", labels=[*_GPU, "source"])
    energy = CounterMetricFamily("rad_gpu_energy_joules", "Energy since the driver was loaded", labels=_GPU)
    for reading in readings:
        labels = [reading.uuid, str(reading.index)]
        source.add_metric([*labels, reading.smact_source or "none"], 1)
        if reading.counters.energy_j is not None:
            energy.add_metric(labels, reading.counters.energy_j)
    yield from (source, energy)


def _of_jobs(
    readings: Sequence[GpuReading],
    usages: Mapping[int, JobUsage],
    owners: Mapping[int, int],
    ledger: Ledger,
) -> Iterator[Metric]:
    booked = GaugeMetricFamily("rad_job_memory_booked_bytes", "What the job booked", labels=_JOB)
    estimate = GaugeMetricFamily("rad_job_memory_estimate_bytes", "The estimate behind it", labels=_JOB)
    used = GaugeMetricFamily("rad_job_memory_used_bytes", "What the job holds", labels=_JOB)
    peak = GaugeMetricFamily("rad_job_memory_peak_bytes", "The most it held on one GPU", labels=_JOB)
    smact = GaugeMetricFamily("rad_job_smact_ratio", "Its share of SM activity, mean", labels=_JOB)
    for held in ledger.reservations:
        usage = usages.get(held.job_id)
        for uuid in held.gpus:
            labels = [uuid, str(held.job_id), str(held.user_id)]
            booked.add_metric(labels, held.booked_bytes)
            used.add_metric(labels, _used_by(held.job_id, uuid, readings, owners))
            if held.estimate_bytes is not None:
                estimate.add_metric(labels, held.estimate_bytes)
            if usage is not None and usage.peak_bytes is not None:
                peak.add_metric(labels, usage.peak_bytes)
            if usage is not None and usage.mean_smact is not None:
                smact.add_metric(labels, usage.mean_smact)
    strangers = GaugeMetricFamily("rad_gpu_memory_strangers_bytes", "Held outside of jobs", labels=_GPU)
    for reading in readings:
        outside = [p.memory_bytes or 0 for p in reading.processes if p.pid not in owners]
        strangers.add_metric([reading.uuid, str(reading.index)], sum(outside))
    yield from (booked, estimate, used, peak, smact, strangers)


def _used_by(job_id: int, uuid: str, readings: Sequence[GpuReading], owners: Mapping[int, int]) -> int:
    processes = [process for reading in readings if reading.uuid == uuid for process in reading.processes]
    return sum(process.memory_bytes or 0 for process in processes if owners.get(process.pid) == job_id)


def _of_hooks(counts: HookCounts) -> Iterator[Metric]:
    counts.update()
    events = CounterMetricFamily("rad_hook_events", "What hooks did", labels=["hook", "event", "policy"])
    for (hook, event, policy), count in sorted(counts.events.items()):
        events.add_metric([hook, event, policy], count)
    times = HistogramMetricFamily("rad_hook_seconds", "How long hooks took", labels=["hook"])
    for hook, told in sorted(counts.durations.items()):
        times.add_metric([hook], [(str(edge), count) for edge, count in told.cumulative()], told.sum_s)
    yield from (events, times)
