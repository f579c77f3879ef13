"""Collect what an answer needs, as any user may: from squeue, sinfo and the rad-monitors of the job's partitions."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_plugin.admin.top.command import port_of
from slurm_plugin.admin.top.fleet import NodeAnswer
from slurm_plugin.admin.top.gather import Gatherer
from slurm_plugin.admin.why.facts import WaitFacts
from slurm_plugin.core.booking.gres_text import parse_gres
from slurm_plugin.core.clock import Clock
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import ConfigError, SlurmError
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.control import JobView, NodeView
from slurm_plugin.slurm.queries.queue import WaitingJob, waiting_jobs

ANSWER_S = 10.0
"""Time-out for each of Slurm's commands."""


def look(job_id: int, config: Config, clock: Clock) -> WaitFacts:
    """Return what is known of a job; sources other than the job itself that cannot be read are listed.

    Args:
        job_id: Slurm's job id.
        config: rad.toml.
        clock: Time.

    Raises:
        ConfigError: Slurm does not know the job.
        SlurmError: Slurm does not answer.
    """
    conf = config.paths.slurm_conf
    slurm = SlurmCommands(slurm_conf=conf, timeout_s=ANSWER_S)
    job = slurm.job(job_id)
    if job is None:
        raise ConfigError(f"Slurm does not know job {job_id} any more; rad report {job_id} has its history")
    missing: list[str] = []
    if not config.partitions:
        missing.append("rad.toml: it names no partition here, so sharing is not explained")
    nodes: Sequence[NodeView] = ()
    waiting: Sequence[WaitingJob] = ()
    try:
        nodes = slurm.nodes()
        waiting = waiting_jobs(slurm_conf=conf, timeout_s=ANSWER_S)
    except SlurmError as exc:
        missing.append(f"Slurm: {exc}")
    return WaitFacts(
        time_s=clock.now_s(),
        job=job,
        config=config,
        nodes=nodes,
        waiting=waiting,
        fleet=_fleet(job, nodes, config, clock, missing),
        missing=tuple(missing),
    )


def _fleet(
    job: JobView, nodes: Sequence[NodeView], config: Config, clock: Clock, missing: list[str]
) -> Sequence[NodeAnswer]:
    """Query the rad-monitors of the nodes that may run the job."""
    partitions = set(job.partition.split(","))
    places = {
        node.name: (node.address or node.name, port_of(config))
        for node in nodes
        if partitions & set(node.partitions) and any(item.name == "gpu" for item in parse_gres(node.gres))
    }
    if not places:
        return ()
    found = Gatherer(places, clock=clock, queue=None).look().nodes
    silent = [node for node in found if node.trouble]
    if silent:
        first = f"{silent[0].name}: {silent[0].trouble}"
        missing.append(f"rad-monitor of {len(silent)} of {len(found)} nodes; {first}")
    return found
