"""`rad simulate` and `rad advise` as commands."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import click

from slurm_plugin.admin.options import Command, all_of, json_option
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.records.submission import PolicyName
from slurm_plugin.slurm.versions import NEWEST, Version, release, release_of


def _release(_context: click.Context, _option: click.Parameter, text: str) -> Version:
    try:
        return release(text)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from None


_cluster_options = all_of(
    click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="Nodes."),
    click.option(
        "--gpus-per-node", type=click.IntRange(1), default=8, show_default=True, help="GPUs of each."
    ),
    click.option("--gpu-memory-mib", type=click.IntRange(1), required=True, help="Usable memory of one GPU."),
    click.option(
        "--slurm",
        callback=_release,
        default=release_of(NEWEST),
        show_default=True,
        help="Its release, which decides how it counts and plans shared GPUs.",
    ),
    click.option(
        "--bf-min-age-reserve",
        type=click.FloatRange(0.0),
        default=0.0,
        show_default=True,
        help="Slurm's: seconds that a job has waited before backfill keeps a node for it.",
    ),
)
_settings_options = all_of(
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        help="A rad.toml whose settings are to be tried; default: what `rad install` writes.",
    ),
    click.option(
        "--partition",
        help="Its partition, needed if it has several; of sacct's jobs those of this one count.",
    ),
)


@click.command(cls=Command)
@click.argument("trace", type=click.Path(path_type=Path))
@_cluster_options
@click.option(
    "--policy", type=click.Choice(get_args(PolicyName)), help="Placement policy; default: as in --config."
)
@click.option(
    "--baseline", type=click.Choice(["whole", "hand"]), help="Without RAD: a GPU each, or shards by hand."
)
@click.option(
    "--estimates",
    type=click.Choice(["measured", "oracle", "none"]),
    default="measured",
    show_default=True,
    help="How good the estimates are: as on our held-out models, exact, or there are none.",
)
@click.option(
    "--on-saturated", type=click.Choice(["place", "wait"]), help="When no GPU has compute to spare."
)
@click.option(
    "--pin",
    type=click.Choice(["slurm", "bound", "free"]),
    default="slurm",
    show_default=True,
    help="Which GPUs of its node a job may get.",
)
@click.option(
    "--compress",
    type=click.FloatRange(1.0),
    default=1.0,
    show_default=True,
    help="How many times faster jobs come and run, as in a replay.",
)
@click.option(
    "--start-up-s",
    type=click.FloatRange(0.0),
    default=0.0,
    show_default=True,
    help="What each start takes before its first step.",
)
@click.option(
    "--backfill-s", type=click.FloatRange(0.1), default=30.0, show_default=True, help="Slurm's bf_interval."
)
@click.option(
    "--slot-min",
    type=click.FloatRange(5.0),
    help="Jobs with longer limits save and go back into the queue after so many minutes.",
)
@_settings_options
@json_option
def simulate(
    trace: Path,
    nodes: int,
    gpus_per_node: int,
    gpu_memory_mib: int,
    slurm: Version,
    bf_min_age_reserve: float,
    policy: PolicyName | None,
    baseline: Literal["whole", "hand"] | None,
    estimates: Literal["measured", "oracle", "none"],
    on_saturated: Literal["place", "wait"] | None,
    pin: Literal["slurm", "bound", "free"],
    compress: float,
    start_up_s: float,
    backfill_s: float,
    slot_min: float | None,
    config: Path | None,
    partition: str | None,
    as_json: bool,
) -> None:
    """Run TRACE on a cluster that is not there and print what it would take.

    TRACE is CSV with arrival_s, workload, gpus, duration_min and mem_mib, or the output of sacct --parsable.
    """
    from slurm_plugin.simulate import command
    from slurm_plugin.simulate.question import Question

    settings = command.settings_of(config, partition, slurm)
    if policy is not None:
        settings = replace(settings, policy=policy)
    if on_saturated is not None:
        settings = replace(settings, on_saturated=on_saturated)
    question = Question(
        trace=trace,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        gpu_memory_mib=gpu_memory_mib,
        slurm=slurm,
        min_age_reserve_s=bf_min_age_reserve,
        settings=settings,
        baseline=baseline or "rad",
        estimates=estimates,
        pin=pin,
        compress=compress,
        start_up_s=start_up_s,
        backfill_s=backfill_s,
        slot_min=slot_min,
        partition=partition,
    )
    figures = command.simulate(question, SystemClock(), show_progress=not as_json and sys.stderr.isatty())
    click.echo(command.as_json(figures) if as_json else command.as_text(figures))


@click.command(cls=Command)
@click.argument("jobs", type=click.Path(path_type=Path))
@_cluster_options
@click.option(
    "--assume-mib",
    type=click.IntRange(1),
    help="Peak of the one-GPU jobs whose peak JOBS does not tell; default: they keep their GPU.",
)
@_settings_options
@json_option
def advise(
    jobs: Path,
    nodes: int,
    gpus_per_node: int,
    gpu_memory_mib: int,
    slurm: Version,
    bf_min_age_reserve: float,
    assume_mib: int | None,
    config: Path | None,
    partition: str | None,
    as_json: bool,
) -> None:
    """Tell what sharing would have changed for JOBS, the output of sacct --parsable, before it is switched on."""
    from slurm_plugin.simulate import advice, command
    from slurm_plugin.simulate.question import Question

    question = Question(
        trace=jobs,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        gpu_memory_mib=gpu_memory_mib,
        slurm=slurm,
        min_age_reserve_s=bf_min_age_reserve,
        settings=command.settings_of(config, partition, slurm),
        partition=partition,
        assumed_mib=assume_mib,
    )
    found = advice.advise(question, SystemClock(), show_progress=not as_json and sys.stderr.isatty())
    click.echo(advice.as_json(found) if as_json else advice.as_text(found))
