"""Make job_submit's decision for srun and salloc on the login node, too.

Slurm 22.05 sets up their first step from the request as typed, so it must be typed as it will be decided. Slurm
ignores a GRES of count 0, so the request still names the GPU for a site's job_submit.lua that requires one.
"""

from __future__ import annotations

from collections.abc import Mapping

from slurm_plugin.core.booking.decide import decide
from slurm_plugin.core.booking.gpu_defaults import GpuDefaults, with_gpu_defaults
from slurm_plugin.core.booking.request import request_from
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.records.submission import JobRequest, Rewrite
from slurm_plugin.directives import Directives, user_directives_of
from slurm_plugin.estimate import Estimator
from slurm_plugin.slurm.submission.job_desc import typed_desc

_OPTIONS = {
    "gres": "gres",
    "tres_per_job": "gpus",
    "tres_per_task": "gpus-per-task",
    "max_nodes": "nodes",
    "cpus_per_task": "cpus-per-task",
    "pn_min_cpus": "mincpus",
    "min_mem_per_node": "mem",
}
"""job_desc fields that `decide` sets, as options of srun and salloc."""


def decided(
    options: Mapping[str, str],
    directives: Directives | None,
    config: Config,
    *,
    comment: str,
    user_id: int,
    whole_as_gpu: bool = False,
    gpu_defaults: Mapping[str, GpuDefaults],
) -> tuple[Rewrite, dict[str, str]]:
    """Return what job_submit will decide, and the options that request it.

    Args:
        options: Options by their long name, as typed.
        directives: The user's directives; None if there are none.
        config: rad.toml.
        comment: The comment, with the model's profile.
        user_id: The user.
        whole_as_gpu: Request a dedicated GPU by `gpu:1` and not by all shards of a GPU.
        gpu_defaults: What Slurm gives a job for each GPU by default, by partition.

    Raises:
        RadError: An option cannot be understood.
    """
    request = request_from(typed_desc(options, comment=comment, user_id=user_id))
    request = with_gpu_defaults(request, gpu_defaults, config.default_partition)
    stated = user_directives_of(directives, request.comment.profile)
    estimate = Estimator.from_config(config).estimate(stated)
    rewrite = decide(request, stated, estimate, config=config, whole_as_gpu=whole_as_gpu)
    return rewrite, _as_options(rewrite.fields, options, request)


def _as_options(fields: Mapping[str, str], options: Mapping[str, str], request: JobRequest) -> dict[str, str]:
    changes = {_OPTIONS[name]: value for name, value in fields.items() if name in _OPTIONS}
    if "gres" in changes:
        kind = next((item.type for item in request.requested if item.name == "gpu" and item.type), None)
        changes["gres"] = f"gpu:{kind}:0,{changes['gres']}" if kind else f"gpu:0,{changes['gres']}"
    if fields and options.get("gpus-per-node"):
        changes["gpus-per-node"] = ""
    return changes
