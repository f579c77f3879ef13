"""submitit: a job, an array, and a job of two tasks with a GPU each."""

from __future__ import annotations

import submitit
from seen import seen


def main() -> None:
    """Submit them and print what they saw."""
    executor = submitit.AutoExecutor(folder="logs", slurm_max_num_timeout=1)
    executor.update_parameters(slurm_partition="gpu", slurm_mem="300MB", timeout_min=5, gpus_per_node=1)
    jobs = [executor.submit(seen), *executor.map_array(lambda _: seen(), range(2))]
    executor.update_parameters(gpus_per_node=2, tasks_per_node=2, slurm_gpus_per_task=1)
    jobs.append(executor.submit(seen))
    for job in jobs:
        print(*job.results(), sep="\n")


if __name__ == "__main__":
    main()
