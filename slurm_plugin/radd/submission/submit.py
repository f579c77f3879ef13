"""Answer the hooks of job_submit.lua: one message in, one reply out, no call to Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from gpumemnet.records import field, frozen, replace
from slurm_plugin.core.booking import messages
from slurm_plugin.core.booking.available_gres import AvailableGres, gpus_for
from slurm_plugin.core.booking.bookings import gpus_of, processes_of
from slurm_plugin.core.booking.decide import NOT_MANAGED, decide
from slurm_plugin.core.booking.gpu_defaults import GpuDefaults, with_gpu_defaults
from slurm_plugin.core.booking.verification import is_for
from slurm_plugin.core.comments import signed_comment
from slurm_plugin.core.comments.admin_comment import Note, format_note
from slurm_plugin.core.config.compute import with_waits
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import EstimateError
from slurm_plugin.core.history.observed import ObservedRuns, with_runs
from slurm_plugin.core.history.site_quantiles import QuantileLimits
from slurm_plugin.core.history.site_quantiles_file import applied, gpu_of, group_of
from slurm_plugin.core.records.submission import JobRequest, MemoryEstimate, Rewrite, UserDirectives
from slurm_plugin.directives import BEHIND, directives_of, user_directives_of
from slurm_plugin.estimate import Estimator
from slurm_plugin.radd.protocol.messages import NO_NAME, Submitted, submitted_from
from slurm_plugin.radd.protocol.reply import Decided, Reply, reply_of


class EarlierRuns(Protocol):
    """Records of earlier runs."""

    def seen(self, user_id: int, profile_key: str, *, processes: int = 1) -> ObservedRuns | None:
        """Return the record of one process of a job that this user ran before; None if it is new.

        Args:
            user_id: The user.
            profile_key: `ModelProfile.key`.
            processes: Number of processes that share a GPU.
        """
        ...


@frozen
class Submission:
    """All that answering needs, read beforehand.

    Attributes:
        config: rad.toml.
        key: The cluster's key.
        estimator: This site's estimator.
        peaks: Observed peaks; None if history is off.
        site: What all users' runs say of groups of jobs (`site_quantiles`); empty for nothing.
        whole_as_gpu: Request an exclusive GPU as `gpu:1`, by partition name; a name not in it means False.
        reserves_shards: A job that requests shards starts in a reservation of parts of nodes.
        forgets_shards: A slurmctld that has just started refuses requests for shards.
        gpu_after_shards: A job that has shards may request gpu:1 in their place.
        max_shard_gpus: Most GPUs of one node that the shards of one job may be on; 0 where Slurm keeps them on one GPU.
        gpu_defaults: What Slurm gives a job for each GPU by default, by partition.
        leave_jobs: Why this Slurm cannot do what RAD would request, so that no job is changed; "" if it can.
    """

    config: Config
    key: bytes
    estimator: Estimator
    peaks: EarlierRuns | None = None
    site: Mapping[str, QuantileLimits] = field(default_factory=dict)
    whole_as_gpu: Mapping[str, bool]
    reserves_shards: bool = True
    forgets_shards: bool = False
    gpu_after_shards: bool = False
    max_shard_gpus: int = 0
    gpu_defaults: Mapping[str, GpuDefaults] = field(default_factory=dict)
    leave_jobs: str = ""

    def parsed(self, fields: Mapping[str, Any]) -> Submitted:
        """Return the submission that a message describes, as this Slurm takes it.

        Raises:
            WireError: The message is not one of job_submit.lua's.
        """
        return submitted_from(
            fields,
            honour_reserved_parts=not self.reserves_shards,
            honour_new_controller=self.forgets_shards,
        )

    def answer(self, job: Submitted) -> Reply:
        """Return the reply to a submission."""
        made = self.decided(job)
        reply = reply_of(made, key=self.key)
        booking = made.rewrite.booking
        if self.config.features.accounting and booking is not None and booking.estimate_bytes is not None:
            reply["set"]["admin_comment"] = format_note(
                Note(event="booked", estimate_bytes=booking.estimate_bytes)
            )
        return reply

    def decided(self, job: Submitted) -> Decided:
        """Return the decision on a submission and the messages for its user; the dry run uses it, too."""
        request = job.request
        if self.config.mode == "off" or not self.config.features.submit:
            return Decided(request=request, rewrite=Rewrite(reason="off"))
        if self.leave_jobs:
            return Decided(request=request, rewrite=Rewrite(reason="no shards here"))
        request = with_gpu_defaults(request, self.gpu_defaults, self.config.default_partition)
        stated, faults = self._stated(job)
        estimate = self._estimate(request, stated)
        rewrite = decide(
            request,
            stated,
            estimate,
            config=self.config,
            whole_as_gpu=self.whole_as_gpu.get(request.partition or self.config.default_partition, False),
            max_shard_gpus=self.max_shard_gpus,
        )
        if self.config.mode == "observe":
            return Decided(request=request, rewrite=rewrite, estimate=estimate)
        more = self._not_read(job) if rewrite.reason == NOT_MANAGED else self._too_little(estimate, rewrite)
        rewrite = replace(rewrite, messages=(*rewrite.messages, *more))
        shown = _with_consequence(faults, rewrite)
        return Decided(request=request, rewrite=rewrite, estimate=estimate, faults=shown)

    def answer_change(self, request: JobRequest) -> Reply:
        """Return the reply to the change of a waiting job's request after it was booked.

        The outcome of the change is unknown here: Slurm may refuse parts of it after the reply. So the booking is only
        marked, and the Prolog queries what was allocated. A job with part of a GPU that now names one gets all of it;
        so does a job with all shards of a GPU that names one in another partition.
        """
        booked = signed_comment.verified_booking(request.comment, user_id=request.user_id, key=self.key)
        if booked is None:
            return reply_of(Decided(request=request, rewrite=Rewrite(reason="changed")), key=self.key)
        request = replace(request, tasks=booked.processes)
        moved = booked.shards > 0 and not is_for(booked, request.partition or self.config.default_partition)
        named = booked.gpus == 1 and (booked.kind == "shared" or moved)
        fields = self._named_gpus(request) if named else {}
        rewrite = Rewrite(fields=fields, booking=replace(booked, changed=True), reason="changed")
        return reply_of(Decided(request=request, rewrite=rewrite), key=self.key)

    def _named_gpus(self, request: JobRequest) -> dict[str, str]:
        """Return the GPUs that a change names, by node: otherwise Slurm refuses them of a job with shards.

        Nothing if it names none, or more than this Slurm takes of such a job.
        """
        gpus, partition = gpus_of(request), self.config.partition(request.partition)
        if gpus == 1 and partition is not None and partition.managed:
            as_gpu = self.whole_as_gpu.get(request.partition or self.config.default_partition, False)
            available = AvailableGres.of(partition, request.requested, whole_as_gpu=as_gpu)
            named = available.whole(None, rerun=True)
        elif gpus and self.gpu_after_shards and (request.nodes or 1) == 1:
            kind = next((item.type for item in request.requested if item.name == "gpu" and item.type), None)
            named = ":".join(filter(None, ("gpu", kind, str(gpus))))
        else:
            return {}
        fields = {"gres": f"{request.other_gres},{named}" if request.other_gres else named}
        if request.gres_per_job:
            fields["tres_per_job"] = ""
        if request.gres_per_task:
            fields["tres_per_task"] = request.other_per_task
        return fields

    def _not_read(self, job: Submitted) -> tuple[str, ...]:
        """Return why the directives of a job in no managed partition have no effect; nothing if it has none."""
        partition = job.request.partition
        names = partition or self.config.default_partition
        if not names or stated_in(job) == (UserDirectives(), ()):
            return ()
        mixed = self.config.manages_only_some(partition)
        return (messages.mixed_partitions(names) if mixed else messages.not_managed(names),)

    def _too_little(self, estimate: MemoryEstimate | None, rewrite: Rewrite) -> tuple[str, ...]:
        """Return a warning if the user states less memory than any process takes; otherwise nothing."""
        if estimate is None or estimate.source != "stated" or rewrite.booking is None:
            return ()
        base_bytes = self.estimator.gpu_model().base_bytes
        too_little = estimate.estimate_bytes < base_bytes
        return (messages.below_a_process(estimate.estimate_bytes, base_bytes),) if too_little else ()

    def _stated(self, job: Submitted) -> tuple[UserDirectives, tuple[str, ...]]:
        """Return the user's requirements, and a line for each fault in them."""
        partition = self.config.partition(job.request.partition)
        if partition is None or not partition.managed:
            return UserDirectives(), ()  # an unchanged job gets no message
        stated, faults = stated_in(job)
        unread = (f"RAD: {job.script_name}: {BEHIND}",) if job.script_goes_on else ()
        return stated, (*faults, *unread)

    def _estimate(self, request: JobRequest, stated: UserDirectives) -> MemoryEstimate | None:
        """Return the need of one process, by the model and by what is known of earlier runs; None if unknown."""
        estimate = self._by_model(request, stated)
        if self.peaks is None or estimate is None or estimate.profile_key is None:
            return estimate
        processes = processes_of(request, stated, gpus_of(request))
        seen = self.peaks.seen(request.user_id, estimate.profile_key, processes=processes)
        return estimate if seen is None else _with_seen(estimate, seen)

    def _by_model(self, request: JobRequest, stated: UserDirectives) -> MemoryEstimate | None:
        """Return the largest need on the GPUs that it may start on, with what all users' runs say of such models."""
        partition = self.config.partition(request.partition)
        each = [self.estimator.on(gpu).estimate(stated) for gpu in gpus_for(partition, request.requested)]
        known = [one for one in each if one is not None]
        estimate = max(known, key=lambda one: one.upper_bytes, default=None)
        if estimate is None or not estimate.kind:
            return estimate
        limits = self.site.get(group_of(estimate.kind, gpu_of(self.config, request.partition)))
        return estimate if limits is None else applied(estimate, limits)


def stated_in(job: Submitted) -> tuple[UserDirectives, tuple[str, ...]]:
    """Return the requirements in a job's comment or script, and a line for each fault in them."""
    comment = job.request.comment
    try:
        directives = directives_of(job.request.script, job.script_name, comment.words)
    except EstimateError as exc:
        return UserDirectives(), tuple(f"RAD: {line}" for line in exc.lines)
    stated = user_directives_of(directives, comment.profile)
    if directives is None or stated.profile is not None:
        return stated, ()
    where = f"{directives.path}:{directives.line}: " if directives.line else ""
    if directives.model is None:
        unknown = f"RAD: {where}no model= and no memory=, so the GPU memory need is unknown"
        return stated, (unknown,) if stated == UserDirectives() else ()
    why = (messages.NO_FILE,) if directives.path == NO_NAME else ()
    return stated, (f"RAD: {where}no model summary was read, so the GPU memory need is unknown", *why)


def _with_consequence(faults: tuple[str, ...], rewrite: Rewrite) -> tuple[str, ...]:
    """Return lines about faults, and what they mean for the job where its decision does not say it."""
    if not faults or rewrite.refusal is not None or rewrite.reason == "no gpu":
        return faults
    booking = rewrite.booking
    alone = booking is not None and booking.kind == "whole" and booking.gpus == 1
    return (*faults, messages.without_that(alone))


def _with_seen(estimate: MemoryEstimate, seen: ObservedRuns) -> MemoryEstimate:
    """Return an estimate with what earlier runs of the same job showed; a need that the user states stays."""
    need = estimate if estimate.source == "stated" else with_runs(estimate, seen)
    if seen.smact is None:
        return replace(need, smact=estimate.smact, busy=estimate.busy)
    busy = with_waits(estimate.busy, estimate.smact, seen.smact)
    return replace(need, smact=seen.smact, smact_seen=True, busy=busy)
