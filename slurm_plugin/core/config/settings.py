"""The settings of rad.toml with their defaults and meanings; load.py reads them, gres_conf/rad.toml explains them."""

from __future__ import annotations

from typing import Literal

from gpumemnet.records import field, frozen
from slurm_plugin.core.config.partition import PartitionConfig


@frozen
class Paths:
    """Paths of files and folders.

    Attributes:
        run: Node state that a reboot may lose: ledger, job folders, MPS pipes, the monitor's window.
        state: Data that must survive a reboot: history, verdicts not yet delivered.
        key: The cluster's key, mode 0600, the same on every node.
        socket: radd's socket.
        log: Folder of RAD's logs.
        slurm_conf: slurm.conf; "" lets Slurm's commands find it.
    """

    run: str = "/run/rad"
    state: str = "/var/lib/rad"
    key: str = "/etc/rad/key"
    socket: str = "/run/rad/radd.sock"
    log: str = "/var/log/rad"
    slurm_conf: str = ""


@frozen
class Features:
    """Kill switches: each turns one part off while the others keep working.

    Attributes:
        submit: radd changes submissions.
        placement: The Prolog chooses the GPU and keeps the ledger.
        mps: Shared jobs run under MPS; without it every partition is read as `sharing = "streams"`.
        recovery: A job that ran out of memory is rerun.
        history: Later runs book what earlier ones needed.
        accounting: The estimate is written into a job's AdminComment and, where there is slurmdbd, the observed peak.
        guard: rad-monitor acts on jobs that use more than they booked.
    """

    submit: bool = True
    placement: bool = True
    mps: bool = True
    recovery: bool = True
    history: bool = True
    accounting: bool = True
    guard: bool = True


@frozen
class TelemetryConfig:
    """Where readings of GPUs come from.

    Attributes:
        source: "auto" takes NVML, with SMACT from GPM or DCGM, whichever the GPU supports.
        simulated_folder: State of simulated GPUs, for `source = "simulated"`.
        timeout_s: A GPU that does not answer in this time is left out.
        window_s: Length of the window over which activity is averaged (thesis section 6.2.2).
        serve: "PORT" or "ADDRESS:PORT" where rad-monitor answers Prometheus and `rad top`; "" for nowhere.
    """

    source: Literal["auto", "nvml", "dcgm", "simulated"] = "auto"
    simulated_folder: str = ""
    timeout_s: float = 2.0
    window_s: int = 90
    serve: str = ""


@frozen
class Config:
    """All of rad.toml.

    Attributes:
        mode: "enforce"; "observe" logs what would be done and changes nothing; "off" does nothing at all.
        estimator: Which of gpumemnet's estimators books the memory.
        gpu: GPU name for the estimate's base, as `rad-estimate --gpu` takes it; "" for the generic base.
        conv_base_mib: Memory of a process that uses convolutions before its first tensor, as `rad calibrate` measures
            it here; 0 takes the figure of `gpu`.
        base_mib: The same for other processes.
        site_quantiles: File with what `rad learn --json` printed: the needs of all users' runs re-calibrate the
            estimates of models that are new to a user. "" keeps the shipped percentiles.
        default_partition: The partition of a job that names none; "" if jobs must name one.
        slurm_backend: How radd accesses Slurm: by Slurm's commands, or by a pyslurm made for the running version.
        paths: Paths of files and folders.
        features: Kill switches.
        telemetry: Sources of readings.
        partition_defaults: Settings of every partition unless it overrides them.
        partitions: The configured partitions; jobs of others pass through unchanged.
    """

    mode: Literal["enforce", "observe", "off"] = "enforce"
    estimator: str = "rad"
    gpu: str = ""
    conv_base_mib: int = 0
    base_mib: int = 0
    site_quantiles: str = ""
    default_partition: str = ""
    slurm_backend: Literal["commands", "pyslurm"] = "commands"
    paths: Paths = field(default_factory=Paths)
    features: Features = field(default_factory=Features)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    partition_defaults: PartitionConfig = field(default_factory=PartitionConfig)
    partitions: dict[str, PartitionConfig] = field(default_factory=dict)

    @property
    def places(self) -> bool:
        """Return whether Prologs place jobs, so that there is a ledger to reconcile."""
        return self.mode == "enforce" and self.features.placement

    @property
    def guards(self) -> bool:
        """Return whether rad-monitor acts on jobs that use more than they booked."""
        return self.mode == "enforce" and self.features.guard

    @property
    def guarded(self) -> tuple[str, ...]:
        """Return the partitions where rad-monitor ends jobs that keep other jobs from getting what they booked."""
        warned = {name for name, settings in self.partitions.items() if settings.on_overrun == "warn"}
        return tuple(name for name in self.partitions if name not in warned) if self.guards else ()

    @property
    def sliced(self) -> tuple[str, ...]:
        """Return the partitions with GPUs shared by time slicing, outside of MPS."""
        return tuple(name for name, settings in self.partitions.items() if settings.sharing == "streams")

    def caps(self, partition: str) -> bool:
        """Return whether MPS is to limit jobs that share one GPU of a partition."""
        settings = self.partitions.get(partition)
        return (
            self.features.mps and settings is not None and settings.sharing == "mps" and settings.memory_cap
        )

    def partition(self, name: str | None) -> PartitionConfig | None:
        """Return the settings of a partition; None if its jobs pass through unchanged.

        A job may name several partitions, separated by commas; it starts in any of them, so it is managed only if all
        of them are treated alike.
        """
        settings = self._named(name)
        return settings[0] if all(one == settings[0] for one in settings) else None

    def manages_only_some(self, name: str | None) -> bool:
        """Return whether a job passes through unchanged because its partitions are treated differently."""
        return self.partition(name) is None and any(one and one.managed for one in self._named(name))

    def _named(self, name: str | None) -> list[PartitionConfig | None]:
        return [self.partitions.get(one) for one in (name or self.default_partition).split(",")]
