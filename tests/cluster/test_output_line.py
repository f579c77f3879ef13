"""The line at the end of a job's own output, written by the Epilog of a real Slurm."""

from __future__ import annotations

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs

pytestmark = pytest.mark.cluster

TRAIN = "python3 fake_train.py --memory 1G --seconds {}"


def test_a_job_ends_with_what_it_used_and_the_file_stays_its_owners(jobs: Jobs, cluster: Cluster) -> None:
    ask = ("--gpus=1", "--comment=rad:memory=4G", "--wrap")
    with cluster.changed_rad_toml():
        cluster.set_rad("output_line", "true", restart=False)
        plain = jobs.submit(*ask, TRAIN.format(3))
        linked = jobs.submit("--output=linked.txt", *ask, TRAIN.format(8))
        assert plain.job_id is not None and linked.job_id is not None
        jobs.wait(plain.job_id, "RUNNING", "COMPLETED")
        secret = jobs.folder / "roots.txt"
        secret.write_text("root's\n")
        jobs.wait(linked.job_id, "RUNNING")
        cluster.wait("it has an output file", (jobs.folder / "linked.txt").exists, 20)
        (jobs.folder / "linked.txt").unlink()  # as its owner could, while the job runs
        (jobs.folder / "linked.txt").symlink_to(secret)
        for job in (plain, linked):
            assert jobs.wait(job.job_id or 0)["JobState"] == "COMPLETED"
        wanted = f"RAD: job {plain.job_id} used 1.0 of 4.0 GiB"
        cluster.wait("the line is there", lambda: wanted in jobs.output(plain.job_id or 0), 20)
        log = cluster.place.log / "epilog.log"
        cluster.wait(
            "the other Epilog gave up",
            lambda: f"job={linked.job_id} " in log.read_text() and "not told owner" in log.read_text(),
            20,
        )
    assert "#RAD memory=2G is enough" in jobs.output(plain.job_id)
    assert secret.read_text() == "root's\n"
