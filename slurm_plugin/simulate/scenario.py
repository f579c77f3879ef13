"""Prepare a simulation from a question: a cluster, and jobs as they enter its queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.records.submission import ServerScope
from slurm_plugin.core.units import from_mib
from slurm_plugin.simulate.cluster import PARTITION, SimulatedCluster
from slurm_plugin.simulate.gpus.interference import Load
from slurm_plugin.simulate.jobs import Refused, make_job
from slurm_plugin.simulate.progress import SimulatedJob
from slurm_plugin.simulate.question import SimulationQuestion
from slurm_plugin.simulate.traces.job import TraceJob, as_words, compressed
from slurm_plugin.simulate.traces.read import read_trace
from slurm_plugin.simulate.traces.users import server_of, user_ids, with_users
from slurm_plugin.simulate.traces.workloads import EXACT, MeasuredError, estimate_errors, load_of, measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A simulation before its first event.

    Attributes:
        cluster: The cluster.
        jobs: In order of submission.
        unknown: Number of jobs without a measured workload.
        left_out: Number of trace rows that are not simulated, by reason.
    """

    cluster: SimulatedCluster
    jobs: Sequence[SimulatedJob]
    unknown: int
    left_out: Mapping[str, int]


def scenario(question: SimulationQuestion) -> Scenario:
    """Read the trace, book its jobs and set up the cluster.

    Raises:
        ConfigError: The trace cannot be read, or no job of it fits the cluster.
    """
    cluster = _cluster(question)
    trace = with_users(read_trace(question.trace, question.partition), question.users, question.seed)
    ids = user_ids(trace)
    known = measured()
    errors = {"measured": estimate_errors(), "oracle": (EXACT,), "none": ()}[question.estimates]
    left_out = Counter(trace.left_out)
    jobs: list[SimulatedJob] = []
    for original, row in zip(trace.jobs, compressed(trace, question.compress).jobs, strict=True):
        if row.gpus > question.gpus_per_node:
            left_out["more GPUs than a node has"] += 1
            continue
        # Its share of waiting for data is the trace's, compressed or not.
        load = load_of(original, known)
        if question.gradients == "buckets":
            load = replace(load, exchanges_per_s=0.0)
        if question.baseline == "rad" and question.settings.sharing == "streams":
            load = replace(load, sliced=True)
        user_id = ids[row.number]
        load = replace(load, server=server_of(_scope(question), row, user_id))
        try:
            job = _job(question, cluster, row, load, errors)
        except Refused:
            left_out["larger than a GPU"] += 1
            continue
        job.user_id = user_id
        jobs.append(job)
    if not jobs:
        raise ConfigError(f"{question.trace}: no job fits this cluster: {as_words(left_out)}")
    unknown = sum(job.trace.workload not in known for job in jobs)
    return Scenario(cluster=cluster, jobs=jobs, unknown=unknown, left_out=left_out)


def _scope(question: SimulationQuestion) -> ServerScope:
    """Return which jobs on a GPU share an MPS server; without RAD each user starts one."""
    return question.settings.mps_server if question.baseline == "rad" else "user"


def _cluster(question: SimulationQuestion) -> SimulatedCluster:
    settings = replace(question.settings, collocate=True, gpu_memory_mib=question.gpu_memory_mib)
    return SimulatedCluster(
        nodes=question.nodes,
        per_node=question.gpus_per_node,
        memory_bytes=from_mib(question.gpu_memory_mib),
        config=Config(partitions={PARTITION: settings}, default_partition=PARTITION),
        pin=question.pin,
        managed=question.baseline == "rad",
        backfill_s=question.backfill_s,
        min_age_reserve_s=question.min_age_reserve_s,
        slurm=question.slurm,
    )


def _job(
    question: SimulationQuestion,
    cluster: SimulatedCluster,
    row: TraceJob,
    load: Load,
    errors: Sequence[MeasuredError],
) -> SimulatedJob:
    if question.assumed_mib is not None and row.gpus == 1 and row.memory_bytes is None:
        row = replace(row, memory_bytes=from_mib(question.assumed_mib))
    return make_job(
        row,
        load,
        cluster.config,
        baseline=question.baseline,
        errors=errors,
        usable_bytes=cluster.memory_bytes,
        start_up_s=question.start_up_s,
        compress=question.compress,
        slot_s=None if question.slot_min is None else 60.0 * question.slot_min / question.compress,
    )
