"""The MPS server of a job: one user's, one Slurm account's, a GPU's, or the job's own."""

from __future__ import annotations

from dataclasses import replace

from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.placement.server_keys import server_key
from slurm_plugin.core.records.node import Demand
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.files.conf_files import enforces_accounts, find_slurm_conf, settings_of
from slurm_plugin.slurm.node.hook_env import HookJob


def with_server(demand: Demand, node: Node, job: HookJob, settings: PartitionConfig) -> Demand:
    """Return a demand with the key of the job's MPS server; unchanged if it does not run under MPS.

    Args:
        demand: What the job may use.
        node: This node.
        job: The job, as slurmd passes it to its hooks.
        settings: The partition's settings.
    """
    under_mps = node.config.features.mps and settings.sharing == "mps" and settings.policy != "exclusive"
    if not under_mps or demand.kind != "shared" or demand.gpus > 1:
        return demand
    with_others = settings.mps_server != "user" and not demand.own_server
    quarantine = _quarantine(node, demand) if with_others else ""
    scope = "user" if quarantine else settings.mps_server
    key = server_key(
        scope,
        user_id=demand.user_id,
        account=_account(node, job) if with_others and scope == "account" else "",
        job_id=demand.job_id,
        own=demand.own_server,
    )
    return replace(demand, server=key, quarantine=quarantine)


def _quarantine(node: Node, demand: Demand) -> str:
    """Return why a job must not share a server with other users; "" if it may."""
    from slurm_plugin.mps.quarantine import faults_of, quarantine_of

    found = quarantine_of(
        faults_of(node.run, demand.user_id),
        job_id=demand.job_id,
        profile_key=demand.profile_key,
        now_s=node.clock.now_s(),
    )
    if found is None:
        return ""
    why = "a GPU fault ended the one that its user's job shared"
    if found.certain:
        whose = "jobs of its user" if found.all_jobs else "a job of its user and model"
        why = f"{whose} caused GPU faults"
    return f"no MPS server with other users until {found.until}: {why}"


def note_quarantine(node: Node, job: HookJob, reason: str) -> str:
    """Write into a job's AdminComment why it shares no server with other users; return why that failed, or "".

    Args:
        node: This node.
        job: The job, as slurmd passes it to its hooks.
        reason: Why.
    """
    from slurm_plugin.slurm.warning import warn  # few jobs are under quarantine

    try:
        warn(job.job_id, reason, node.slurm(), restart=job.restart, key=node.key())
    except SlurmError as exc:
        return str(exc)
    return ""


def _account(node: Node, job: HookJob) -> str:
    """Return the job's account; "" where Slurm does not check that its user belongs to it, or does not answer."""
    slurm_conf = find_slurm_conf(node.config.paths.slurm_conf, {"SLURM_CONF": node.slurm_conf or ""})
    if slurm_conf is None or not enforces_accounts(settings_of(slurm_conf)):
        return ""
    if job.account:
        return job.account
    try:
        return node.slurm().account(job.job_id)
    except SlurmError:
        return ""
