"""What an admin sees in sreport of users who share GPUs and of users who take whole ones.

    PYTHONPATH=. python bench/sreport.py

As root: the private Slurm, users and jobs of bench/fair_share.py. sreport sums up whole hours; so the database's times
are put three hours back before `sacctmgr rollup` does what slurmdbd does each hour.
"""

from __future__ import annotations

import time
from pathlib import Path

from bench.fair_share import charged, private
from lab.cluster import Cluster

CHECKOUT = Path(__file__).resolve().parent.parent
BACK_S = 3 * 3600
TIMES = {
    "job_table": ("time_submit", "time_eligible", "time_start", "time_end"),
    "step_table": ("time_start", "time_end"),
    "event_table": ("time_start", "time_end"),
    "assoc_table": ("creation_time",),
}
WINDOW = ("start=now-4hours", "end=now")
REPORTS = (
    (
        "sreport",
        "-t",
        "minutes",
        "-T",
        "gres/gpu,gres/shard,billing",
        "cluster",
        "UserUtilizationByAccount",
        *WINDOW,
    ),
    ("sreport", "-t", "minper", "-T", "gres/gpu,gres/shard,billing", "cluster", "utilization", *WINDOW),
    ("sreport", "-t", "minutes", "-T", "billing", "user", "top", *WINDOW),
)


def main() -> None:
    """Run the jobs, move them into hours that are over, and print what sreport says."""
    with private("sreport") as jobs:
        for row in charged(jobs):
            print(row)
        put_back(jobs.cluster)
        for argv in REPORTS:
            print("$", *argv, f"\n{jobs.cluster.slurm(*argv)}")


def put_back(cluster: Cluster) -> None:
    """Let what was done now have been done three hours ago, and sum it up."""
    name = f"rad_{cluster.place.root.name}".replace("-", "_")
    lines = [
        f"update {name}_{table} set {', '.join(f'{at} = if({at} > 0, {at} - {BACK_S}, 0)' for at in columns)};"
        for table, columns in TIMES.items()
    ]
    then = int(time.time()) - BACK_S - 7200
    lines.append(
        f"update {name}_last_ran_table set hourly_rollup={then}, daily_rollup={then}, monthly_rollup={then};"
    )
    sql = ["mariadb", "--no-defaults", "-S", str(cluster.place.root / "db" / "s"), "slurm_acct_db", "-e"]
    cluster.slurm(*sql, "\n".join(lines))
    cluster.slurm("sacctmgr", "-i", "rollup")


if __name__ == "__main__":
    main()
