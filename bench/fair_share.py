"""What Slurm charges users who share GPUs and users who take whole ones, with the weights that `rad install` prints.

    PYTHONPATH=. python bench/fair_share.py [--json FILE]

A private Slurm with slurmdbd, four simulated GPUs of 39 shards, `GRES/gpu=39,GRES/shard=1` and fair share. One
user shares, another takes whole GPUs by `policy=exclusive`, a third takes them past RAD, in a partition that does not
share. Then the first gets a budget of billing minutes (GrpTRESMins) that is used up.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.cluster import Cluster
from lab.daemons import LabError
from lab.jobs import Jobs
from lab.place import ClusterSpec, Place, home_of

CHECKOUT = Path(__file__).resolve().parent.parent
WEIGHTS = "GRES/gpu=39,GRES/shard=1"
RUN_S = 20
SITE = (
    "AccountingStorageTRES=gres/gpu,gres/shard",
    "AccountingStorageEnforce=associations,limits,qos",
    "PriorityType=priority/multifactor",
    "PriorityWeightFairshare=100000",
    "PriorityDecayHalfLife=7-0",
)
USERS = {
    "games": ("shares: 10 GiB", ("--gpus=1", "--comment=rad:memory=10G")),
    "backup": ("a GPU of its own", ("--gpus=1", "--comment=rad:policy=exclusive")),
    "news": ("a GPU past RAD", ("--partition=plain", "--gpus=1")),
}
JOBS = 2


def main() -> None:
    """Run the jobs and print what was charged."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with private("fair") as jobs:
        rows = charged(jobs)
        for row in rows:
            print(row)
        budget = budgeted(jobs, rows[0]["usage"])
        print(budget)
    if options.json:
        text = {"slurm": cluster_version(), "weights": WEIGHTS, "users": rows, "budget": budget}
        options.json.write_text(json.dumps(text, indent=1) + "\n")


@contextmanager
def private(name: str) -> Iterator[Jobs]:
    """Have a private Slurm with slurmdbd, the weights and the users.

    Args:
        name: Of its folder.

    Yields:
        Its jobs.
    """
    home, _ = home_of(CHECKOUT)
    cluster = Cluster(Place(root=home / name, venv=home / "venv"))
    try:
        cluster.up(ClusterSpec(accounts=True, slurm_conf=SITE))
        weigh(cluster)
        folder = cluster.place.root / "work"
        shutil.copytree(CHECKOUT / "examples", folder)
        folder.chmod(0o1777)
        yield Jobs(cluster, folder)
    finally:
        cluster.down()


def weigh(cluster: Cluster) -> None:
    """Put the weights into every partition, and the users into accounts."""
    for partition in ("gpu", "plain"):
        path = cluster.place.slurm_conf
        line = f"PartitionName={partition} "
        path.write_text(path.read_text().replace(line, f"{line}TRESBillingWeights={WEIGHTS} "))
    cluster.slurm("scontrol", "reconfigure")
    for user in USERS:
        if user != "games":  # whom the lab adds itself
            cluster.slurm("sacctmgr", "-i", "add", "user", user, "account=lab")


def charged(jobs: Jobs) -> list[dict[str, object]]:
    """Return each user's jobs, and what sshare says that they used."""
    train = f"python3 fake_train.py --memory 9G --seconds {RUN_S}"
    ids = {}
    for user, (_, argv) in USERS.items():
        made = [jobs.submit(*argv, "--wrap", train, user=user) for _ in range(JOBS)]
        assert all(job.job_id for job in made), made
        ids[user] = [job.job_id or 0 for job in made]
    for each in ids.values():
        for job in each:
            jobs.wait(job, timeout_s=180)
    rows: list[dict[str, object]] = []
    for user, (what, _) in USERS.items():
        held = [elapsed_s(jobs, job) for job in ids[user]]
        usage: list[int] = []

        def known(user: str = user, usage: list[int] = usage) -> bool:
            usage[:] = [used(jobs.cluster, user)]
            return usage[0] > 0

        jobs.cluster.wait(f"usage of {user}", known, 90)
        billing = [jobs.fields(job).get("AllocTRES") or jobs.fields(job).get("TRES", "") for job in ids[user]]
        per_s = round(usage[0] / sum(held), 2)
        rows.append(
            {
                "user": user,
                "jobs": what,
                "held": billing[0],
                "seconds": sum(held),
                "usage": usage[0],
                "per_s": per_s,
            }
        )
    return rows


def elapsed_s(jobs: Jobs, job: int) -> int:
    """Return how long a job ran, as the accounts say."""
    text = jobs.cluster.slurm("sacct", "-n", "-X", "-P", "-j", str(job), "-o", "ElapsedRaw")
    return int(text.split()[0])


def used(cluster: Cluster, user: str) -> int:
    """Return a user's usage in billing seconds (sshare's RawUsage)."""
    text = cluster.slurm("sshare", "-n", "-P", "-U", "-u", user, "-o", "RawUsage")
    return int((text.split() or ["0"])[0])


def budgeted(jobs: Jobs, usage: object) -> dict[str, object]:
    """Return what happens to a sharing job whose user's billing minutes are used up, and once there are more."""
    minutes = int(str(usage)) // 60
    cluster = jobs.cluster
    limit = ("sacctmgr", "-i", "modify", "user", "games", "set")
    cluster.slurm(*limit, f"GrpTRESMins=billing={minutes}")
    job = jobs.submit(
        *USERS["games"][1],
        "--time=1",
        "--wrap",
        "python3 fake_train.py --memory 9G --seconds 1",
        user="games",
    )
    assert job.job_id is not None, job.messages
    found: dict[str, str] = {}

    def waits() -> bool:
        found.update(jobs.fields(job.job_id or 0))
        return "Minutes" in found.get("Reason", "")

    cluster.wait("the limit is met", waits, 60)
    cluster.slurm(*limit, f"GrpTRESMins=billing={minutes + 100}")
    ended = jobs.wait(job.job_id, timeout_s=90)["JobState"]
    return {"minutes": minutes, "reason": found["Reason"], "with_100_more": ended}


def cluster_version() -> str:
    """Return the version of the Slurm that is installed."""
    from slurm_plugin.slurm.files.installed import installed_version

    return ".".join(map(str, installed_version() or ()))


if __name__ == "__main__":
    try:
        main()
    except LabError as exc:
        sys.exit(f"fair_share: {exc}")
