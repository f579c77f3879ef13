"""GPUs that exist only in a folder: the telemetry source of demo and tests, and the devices of their fake trainings.

    FOLDER/gpus.json           the GPUs, written once
    FOLDER/lock                 taken while memory changes hands
    FOLDER/processes/PID.json   usage of one process, written by that process alone

A process file is replaced by rename, so a reader never sees half of one. It counts only while its process lives:
pid and start time must both match, so a crash or `kill -9` frees the memory as with a real driver.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from slurm_plugin.core.clock import Clock, SystemClock
from slurm_plugin.core.errors import DeviceError
from slurm_plugin.core.files.atomic import replace_file
from slurm_plugin.core.process.identity import started_ticks
from slurm_plugin.core.records.gpu import GpuProcess, GpuReading
from slurm_plugin.monitor.gpus.simulated_gpus import GpuFullError, GpuSpec, Holding, parsed


class SimulatedGpus:
    """The GPUs of one node; any number of processes may use one folder at once."""

    def __init__(self, folder: Path, *, clock: Clock | None = None) -> None:
        self._folder = folder
        self._clock = clock or SystemClock()

    @classmethod
    def create(cls, folder: Path, gpus: Sequence[GpuSpec]) -> SimulatedGpus:
        """Make the folder; every user of the machine may then run fake trainings on it.

        Args:
            folder: Folder of the files.
            gpus: The GPUs to make.
        """
        processes = folder / "processes"
        processes.mkdir(parents=True, exist_ok=True)
        processes.chmod(0o1777)  # sticky, as /tmp: each user removes only files of their own
        (folder / "lock").touch()
        (folder / "lock").chmod(0o666)
        (folder / "gpus.json").write_text(json.dumps([asdict(gpu) for gpu in gpus], indent=1))
        return cls(folder)

    def gpus(self) -> tuple[GpuSpec, ...]:
        """Return the GPUs, ordered by index.

        Raises:
            DeviceError: There is no such simulation.
        """
        try:
            rows = json.loads((self._folder / "gpus.json").read_text())
        except (OSError, ValueError) as exc:
            raise DeviceError(f"{self._folder}: no simulated GPUs here ({exc})") from exc
        return tuple(sorted((GpuSpec(**row) for row in rows), key=lambda gpu: gpu.index))

    def read(self) -> tuple[GpuReading, ...]:
        """Return a reading of every GPU, as Telemetry requires.

        Raises:
            DeviceError: There is no such simulation.
        """
        holdings = self._living()
        return tuple(self._reading(gpu, [h for h in holdings if h.uuid == gpu.uuid]) for gpu in self.gpus())

    def _reading(self, gpu: GpuSpec, holdings: Sequence[Holding]) -> GpuReading:
        return GpuReading(
            uuid=gpu.uuid,
            index=gpu.index,
            name=gpu.name,
            memory_total_bytes=gpu.memory_total_bytes,
            memory_reserved_bytes=gpu.memory_reserved_bytes,
            memory_used_bytes=sum(holding.memory_bytes for holding in holdings),
            smact=min(1.0, sum(holding.smact for holding in holdings)),
            smact_source="simulated",
            processes=tuple(GpuProcess(pid=h.pid, memory_bytes=h.memory_bytes) for h in holdings),
            time_s=self._clock.now_s(),
        )

    def hold(self, uuid: str, memory_bytes: int, *, cap_bytes: int | None = None, smact: float = 0.0) -> None:
        """Set the memory that this process uses on a GPU from now on, more or less than before.

        Args:
            uuid: The GPU.
            memory_bytes: Total usage of the process there, not the change.
            cap_bytes: Its own limit, as MPS sets one (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT); None for no limit.
            smact: Share of SMs that it keeps busy.

        Raises:
            GpuFullError: GPU or limit is full; the process keeps its previous usage.
            DeviceError: No such GPU.
        """
        gpu = next((gpu for gpu in self.gpus() if gpu.uuid == uuid), None)
        if gpu is None:
            raise DeviceError(f"no simulated GPU {uuid}")
        pid = os.getpid()
        with self._locked():
            others = [holding for holding in self._living() if holding.uuid == uuid and holding.pid != pid]
            available_bytes = gpu.usable_bytes - sum(holding.memory_bytes for holding in others)
            available_bytes = available_bytes if cap_bytes is None else min(available_bytes, cap_bytes)
            if memory_bytes > available_bytes:
                own = self._own(pid)
                total = gpu.usable_bytes if cap_bytes is None else min(cap_bytes, gpu.usable_bytes)
                raise GpuFullError(
                    total_bytes=total, free_bytes=max(0, available_bytes - (own.memory_bytes if own else 0))
                )
            self._write(
                Holding(
                    pid=pid,
                    started_ticks=started_ticks(pid) or 0,
                    uuid=uuid,
                    memory_bytes=memory_bytes,
                    smact=smact,
                )
            )

    def set_smact(self, smact: float) -> None:
        """Set the share of SMs that this process keeps busy."""
        with self._locked():
            own = self._own(os.getpid())
            if own is not None:
                self._write(replace(own, smact=smact))

    def release(self) -> None:
        """Free all memory of this process."""
        self._file(os.getpid()).unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._folder / "lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _file(self, pid: int) -> Path:
        return self._folder / "processes" / f"{pid}.json"

    def _write(self, holding: Holding) -> None:
        replace_file(self._file(holding.pid), json.dumps(asdict(holding)).encode())

    def _own(self, pid: int) -> Holding | None:
        return next((holding for holding in self._living() if holding.pid == pid), None)

    def _living(self) -> list[Holding]:
        """Return the memory of live processes and remove the files of dead ones if permitted."""
        found = []
        for path in sorted((self._folder / "processes").glob("*.json")):
            holding = parsed(path)
            if holding is not None and started_ticks(holding.pid) == holding.started_ticks:
                found.append(holding)
            elif holding is not None and os.access(path, os.W_OK):
                path.unlink(missing_ok=True)
        return found
