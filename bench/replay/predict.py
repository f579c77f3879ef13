"""Predict the duration of a run by simulation."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from replay.options import COPIES, min_age_reserve_s
from replay.policies import POLICIES, rad_toml
from replay.users import dealt_of
from slurm_plugin.core.config import toml
from slurm_plugin.core.config.load import PartitionConfig, parse_config
from slurm_plugin.simulate.cluster import PARTITION
from slurm_plugin.simulate.engine import Engine
from slurm_plugin.simulate.jobs import Baseline
from slurm_plugin.simulate.metrics import metrics
from slurm_plugin.simulate.question import Estimates, SimulationQuestion
from slurm_plugin.simulate.scenario import scenario

START_UP_S = 1.0
"""From a job's start to its first step alone on an H200, mean of 180 (docs/results/replay, whole GPUs)."""
PACE_S = 0.4
"""What Slurm takes from a job's end to the next one's start on its GPU, median of the same runs."""
BACKFILL_S = 2.0
"""bf_interval of the replay's Slurm (lab/config.py)."""
AROUND_S = 30.0
"""What a run takes apart from its jobs: Slurm comes up and goes down, trainings' libraries are loaded."""
OFF = {"whole": 1.05}
"""How much longer than simulated a run may take: with whole GPUs simulation and replays agree to one in a hundred."""
MOST_OFF = 1.25
BY_USERS = 1.2
"""More of it where jobs of several users share GPUs: their servers' turns are simulated, from fewer replays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What is expected of a run.

    Attributes:
        makespan_s: From its first submission to its last job's end.
        took_s: The longest that it should take with all around it.
        start_up_share: What its jobs spend before their first steps, of all the time that they run.
    """

    makespan_s: float
    took_s: float
    start_up_share: float


def predict(options: argparse.Namespace) -> Prediction:
    """Return what is expected of a run.

    Raises:
        ConfigError: The trace cannot be read, or a setting is wrong.
    """
    found = scenario(_question(options))
    jobs = [job for job in found.jobs if job.trace.gpus <= options.gpus]
    result = Engine(found.cluster, jobs[: options.first]).run()
    figures = metrics(result)
    ran_s = sum(job.ran_s - PACE_S for job in result.jobs)
    off = OFF.get(options.policy) or MOST_OFF * (BY_USERS if dealt_of(options).users > 1 else 1.0)
    return Prediction(
        makespan_s=figures["makespan_s"],
        took_s=AROUND_S + off * figures["makespan_s"],
        start_up_share=START_UP_S * len(result.jobs) / max(ran_s, 1e-9),
    )


def _question(options: argparse.Namespace) -> SimulationQuestion:
    policy, users = POLICIES[options.policy], dealt_of(options)
    baseline: Baseline = "rad" if policy.with_rad else "hand" if policy.shared else "whole"
    known: dict[str, Estimates] = {"oracle": "oracle", "none": "none"}
    return SimulationQuestion(
        trace=options.trace,
        nodes=1,
        gpus_per_node=options.gpus,
        gpu_memory_mib=options.gpu_memory_mib,
        settings=_settings(options) if policy.with_rad else PartitionConfig(),
        baseline=baseline,
        estimates=known.get(options.estimates, "measured"),
        gradients="one by one" if options.exchange == COPIES else "buckets",
        pin="bound",
        compress=options.compress,
        start_up_s=START_UP_S + PACE_S,
        backfill_s=BACKFILL_S,
        min_age_reserve_s=min_age_reserve_s(options),
        users=users.users if users.users == 1 or users.seed is not None else None,
        seed=options.seed,
    )


def _settings(options: argparse.Namespace) -> PartitionConfig:
    lines = [*rad_toml(POLICIES[options.policy], options.estimates), *(f"{k} = {v}" for k, v in options.set)]
    table: dict[str, Any] = toml.loads("\n".join(lines))
    found = parse_config({"partition": {PARTITION: table}}, origin="--set").partition(PARTITION)
    assert found is not None
    return found
