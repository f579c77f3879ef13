"""One reading of a GPU, as decisions use it; monitor/gpus/telemetry.py makes the readings.

A value that a source does not report is None, never 0 and never -1. Sizes are bytes, activities are shares from 0 to 1.
SMACT is the share of streaming multiprocessors that held at least one warp, averaged over SMs and time; unlike
"GPU utilisation" it distinguishes a kernel of one block from a full GPU (Robroek et al., EuroMLSys 2023, section 3).
"""

from __future__ import annotations

from typing import Literal

from gpumemnet.records import frozen

Source = Literal["nvml-gpm", "dcgm", "nvml-utilisation", "simulated"]


@frozen
class GpuProcess:
    """One process on a GPU.

    Attributes:
        pid: Process id on this host.
        memory_bytes: GPU memory it uses, context included; None where the driver does not report it. Managed memory
            (cuMemAllocManaged) does not count here.
        mps: Whether it reaches the GPU through an MPS server; None where the driver does not report it.
    """

    pid: int
    memory_bytes: int | None
    mps: bool | None = None


@frozen
class GpuCounters:
    """Counters of a GPU other than memory and SMACT: for display and metrics, never for a decision.

    Attributes:
        graphics: Share of time in which any kernel ran, commonly called "GPU utilisation".
        smocc: SM occupancy: resident warps over the most possible, averaged over SMs and time.
        tensor: Share of cycles in which tensor cores worked.
        dram: Share of cycles in which device memory moved data.
        pcie_tx_bytes_s: Traffic to the host, bytes a second.
        pcie_rx_bytes_s: Traffic from the host, bytes a second.
        nvlink_tx_bytes_s: Traffic to other GPUs, bytes a second.
        nvlink_rx_bytes_s: Traffic from other GPUs, bytes a second.
        power_w: Draw of the whole board.
        energy_j: Energy since the driver was loaded.
        ecc_uncorrected: Uncorrectable memory errors since the driver was loaded.
        xid: Last Xid error that the driver reported while the monitor listened.
    """

    graphics: float | None = None
    smocc: float | None = None
    tensor: float | None = None
    dram: float | None = None
    pcie_tx_bytes_s: float | None = None
    pcie_rx_bytes_s: float | None = None
    nvlink_tx_bytes_s: float | None = None
    nvlink_rx_bytes_s: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    ecc_uncorrected: int | None = None
    xid: int | None = None


@frozen
class GpuReading:
    """One GPU at one moment.

    Attributes:
        uuid: "GPU-..." as CUDA_VISIBLE_DEVICES takes it.
        index: The number that Slurm uses: N of /dev/nvidiaN (the minor number, which need not be NVML's index).
        name: Product name.
        memory_total_bytes: All memory of the GPU.
        memory_reserved_bytes: Reserved by the driver and never usable; None if not reported separately.
        memory_used_bytes: Used by processes.
        smact: SM activity, or None.
        smact_source: Source of smact; "nvml-utilisation" is misleading and flagged wherever it is shown.
        processes: Compute processes with their memory.
        mig: The GPU is partitioned: it is never shared as a whole.
        healthy: False after an error that needs a reset; such a GPU is never a candidate.
        time_s: When it was read, seconds since the epoch.
        counters: Its other counters.
    """

    uuid: str
    index: int
    name: str
    memory_total_bytes: int
    memory_used_bytes: int
    time_s: float
    memory_reserved_bytes: int | None = None
    smact: float | None = None
    smact_source: Source | None = None
    processes: tuple[GpuProcess, ...] = ()
    mig: bool = False
    healthy: bool = True
    counters: GpuCounters = GpuCounters()

    @property
    def usable_bytes(self) -> int:
        """Return the memory that processes can use in total."""
        return max(0, self.memory_total_bytes - (self.memory_reserved_bytes or 0))

    @property
    def free_bytes(self) -> int:
        """Return the memory that processes can still allocate."""
        return max(0, self.usable_bytes - self.memory_used_bytes)
