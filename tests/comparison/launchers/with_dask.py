"""dask-jobqueue: two workers with a GPU each."""

from __future__ import annotations

from dask.distributed import Client
from dask_jobqueue import SLURMCluster
from seen import seen


def main() -> None:
    """Start the workers and print what each saw."""
    request = {"queue": "gpu", "cores": 1, "processes": 1, "memory": "400MB", "walltime": "00:05:00"}
    extra = {
        "job_extra_directives": ["--gres=gpu:1"],
        "scheduler_options": {"host": "127.0.0.1", "dashboard": False},
    }
    with SLURMCluster(**request, **extra) as cluster, Client(cluster) as client:
        cluster.scale(2)
        client.wait_for_workers(2, timeout=60)
        print(*client.run(seen).values(), sep="\n")


if __name__ == "__main__":
    main()
