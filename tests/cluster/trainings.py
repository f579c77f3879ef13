"""What tests see of GPUs, and trainings that last until it was seen, however slow the machine is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.watch import Watcher
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.monitor.window import read_window

LEAST_BYTES = GIB
"""What each of them holds, and more than the context that it begins with."""


def train(memory: str, seconds: float = 0, *, smact: float = 0.2) -> str:
    """Return the command of a training that goes on after these seconds until `follow` has seen this run of it."""
    until = "seen.$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"
    return f"python3 fake_train.py --memory {memory} --seconds {seconds} --smact {smact} --until {until}"


def follow(
    jobs: Jobs,
    ids: Collection[int],
    *,
    gpus: Mapping[int, int] | None = None,
    together: Collection[int] = (),
    look: Callable[[Mapping[int, Mapping[str, str]]], None] = lambda rows: None,
    timeout_s: float = 90.0,
) -> Watcher:
    """Follow trainings to their end and return what their runs did on the GPUs.

    Args:
        jobs: The cluster's jobs.
        ids: Those that are to complete.
        gpus: How many GPUs each uses, where it is more than one.
        together: Those that are to use their GPUs at one time: none of them ends before all have been seen.
        look: Is shown every job of the cluster each time, by its id, as `scontrol show job` names its properties.
        timeout_s: When to give up; later on a busy machine.
    """
    place = jobs.cluster.place
    nodes = [path.name for path in (place.root / "gpus").iterdir()]
    watcher = Watcher({node: SimulatedGpus(place.gpus(node)) for node in nodes})
    wanted = dict.fromkeys(ids, 1) | dict(gpus or {})

    def over() -> bool:
        watcher.sample()
        seen = {
            key
            for key, run in watcher.runs.items()
            if len(run.gpus) >= wanted.get(key[0], 1) and run.peak_bytes >= LEAST_BYTES
        }
        wait = not {job for job, _ in seen}.issuperset(together)
        for job, restart in seen:
            if not (wait and job in together):
                (jobs.folder / f"seen.{job}.{restart}").touch()
        rows = jobs.all_fields()
        look(rows)
        return all(rows.get(job, {}).get("JobState") == "COMPLETED" for job in ids)

    jobs.cluster.wait(f"jobs {sorted(ids)} complete", over, timeout_s)
    return watcher


@contextmanager
def unmanaged(
    cluster: Cluster, node: str, uuid: str, memory_bytes: int, *, smact: float = 0.1
) -> Iterator[None]:
    """Let this process, which is of no job, hold memory of a GPU, once rad-monitor has seen it."""
    gpus = SimulatedGpus(cluster.place.gpus(node))

    def is_seen() -> bool:
        window = read_window(cluster.place.run / node, now_s=cluster.clock.now_s())
        return any(gpu.uuid == uuid and (gpu.memory_used_bytes or 0) >= memory_bytes for gpu in window or ())

    gpus.hold(uuid, memory_bytes, smact=smact)
    try:
        cluster.wait("rad-monitor sees it", is_seen, 20)
        yield
    finally:
        gpus.release()
