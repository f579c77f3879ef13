"""What tests on a real Slurm do with jobs, beyond what `lab` offers."""

from __future__ import annotations

from lab.jobs import Jobs


def submit(jobs: Jobs, *argv: str, user: str = "nobody") -> int:
    """Submit a job that must be accepted, and return its id.

    Args:
        jobs: The cluster's jobs.
        argv: sbatch's arguments.
        user: Who submits.
    """
    job = jobs.submit(*argv, user=user)
    assert job.job_id is not None, job.messages
    return job.job_id
