"""The screens, in the order of their tabs."""

from __future__ import annotations

from slurm_plugin.admin.top import rows
from slurm_plugin.admin.top.cells import Column, Screen

SCREENS = (
    Screen(
        name="GPUs",
        columns=(
            Column(title="NODE", width=16),
            Column(title="GPU", width=3, right=True, falls=True),
            Column(title="MEMORY used/booked/usable", width=30, falls=True),
            Column(title="SM ACTIVITY", width=16, falls=True),
            Column(title="JOBS", width=-20, falls=True),
        ),
        rows=rows.gpus,
        empty="No node answers.",
    ),
    Screen(
        name="Jobs",
        columns=(
            Column(title="JOB", width=10, right=True, falls=True),
            Column(title="USER", width=12),
            Column(title="NODE", width=16),
            Column(title="GPU", width=3, right=True),
            Column(title="KIND", width=6),
            Column(title="EST", width=6, right=True, falls=True),
            Column(title="MEMORY now/booked", width=24, falls=True),
            Column(title="PEAK", width=6, right=True, falls=True),
            Column(title="SMACT", width=5, right=True, falls=True),
            Column(title="IDLE", width=6, right=True, falls=True),
        ),
        rows=rows.jobs,
        empty="No job uses a GPU.",
    ),
    Screen(
        name="Users",
        columns=(
            Column(title="USER", width=14),
            Column(title="JOBS", width=6, right=True, falls=True),
            Column(title="GPUS", width=6, right=True, falls=True),
            Column(title="BOOKED GiB", width=11, right=True, falls=True),
            Column(title="NOW GiB", width=9, right=True, falls=True),
            Column(title="SMACT sum", width=9, right=True, falls=True),
            Column(title="WAITING", width=8, right=True, falls=True),
            Column(title="", width=0),
        ),
        rows=rows.users,
        empty="No user has a job.",
    ),
    Screen(
        name="Queue",
        columns=(
            Column(title="JOB", width=10, right=True),
            Column(title="USER", width=12),
            Column(title="PARTITION", width=12),
            Column(title="ASKS", width=14),
            Column(title="WAITS", width=8, right=True, falls=True),
            Column(title="PRIORITY", width=10, right=True, falls=True),
            Column(title="RESTARTS", width=8, right=True, falls=True),
            Column(title="REASON", width=-12),
        ),
        rows=rows.queue,
        empty="No job waits for GPUs.",
    ),
    Screen(
        name="Recoveries",
        columns=(
            Column(title="TIME", width=8, falls=True),
            Column(title="NODE", width=16),
            Column(title="JOB", width=10, right=True, falls=True),
            Column(title="USER", width=12),
            Column(title="WHAT", width=-16),
        ),
        rows=rows.happened,
        empty="No events since the monitors were started.",
    ),
)
