"""`rad simulate` and `rad advise` as commands."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, get_args

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


# Options are named as the fields of SimulationQuestion that they give.
_cluster_options = all_of(
    click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="Number of nodes."),
    click.option(
        "--gpus-per-node", type=click.IntRange(1), default=8, show_default=True, help="GPUs per node."
    ),
    click.option("--gpu-memory-mib", type=click.IntRange(1), required=True, help="Usable memory of one GPU."),
    click.option(
        "--slurm",
        callback=_release,
        default=release_of(NEWEST),
        show_default=True,
        help="Slurm release, which decides how shared GPUs are counted and planned.",
    ),
    click.option(
        "--bf-min-age-reserve",
        "min_age_reserve_s",
        type=click.FloatRange(0.0),
        default=0.0,
        show_default=True,
        help="As in Slurm: seconds that a job waits before backfill reserves a node for it.",
    ),
)
_settings_options = all_of(
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        help="The rad.toml to simulate; default: the one that `rad install` writes.",
    ),
    click.option(
        "--partition",
        help="Partition in rad.toml, if there are several; only its jobs in sacct's output count.",
    ),
)


@click.command(cls=Command)
@click.argument("trace", type=click.Path(path_type=Path))
@_cluster_options
@click.option(
    "--policy", type=click.Choice(get_args(PolicyName)), help="Placement policy; default: as in --config."
)
@click.option(
    "--baseline",
    type=click.Choice(["whole", "hand"]),
    callback=lambda _context, _option, value: value or "rad",
    help="Simulate without RAD: whole GPUs, or shards requested by users.",
)
@click.option(
    "--estimates",
    type=click.Choice(["measured", "oracle", "none"]),
    default="measured",
    show_default=True,
    help="Accuracy of the estimates: as on the held-out models, exact, or no estimates.",
)
@click.option(
    "--on-saturated", type=click.Choice(["place", "wait"]), help="What to do when no GPU has free compute."
)
@click.option(
    "--pin",
    type=click.Choice(["slurm", "bound"]),
    default="slurm",
    show_default=True,
    help="Which GPUs of its node a job may use.",
)
@click.option(
    "--compress",
    type=click.FloatRange(1.0),
    default=1.0,
    show_default=True,
    help="Time compression of submissions and run times, as in a replay.",
)
@click.option(
    "--start-up-s",
    type=click.FloatRange(0.0),
    default=0.0,
    show_default=True,
    help="Start-up time of each job before its first step.",
)
@click.option(
    "--backfill-s", type=click.FloatRange(0.1), default=30.0, show_default=True, help="Slurm's bf_interval."
)
@click.option(
    "--slot-min",
    type=click.FloatRange(5.0),
    help="Requeue jobs with longer limits, with a checkpoint, after this many minutes.",
)
@click.option(
    "--users",
    type=click.IntRange(1),
    help="Deal the jobs out to this many users; default: TRACE's users and accounts, else one user.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of dealing out --users.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Another value of a partition setting, as mps_server=gpu; may be repeated.",
)
@_settings_options
@json_option
def simulate(
    policy: PolicyName | None,
    on_saturated: str | None,
    changes: tuple[str, ...],
    config: Path | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Simulate the jobs of TRACE on a cluster and print the results.

    TRACE is CSV with arrival_s, workload, gpus, duration_min and mem_mib, or the output of sacct --parsable.
    """
    from slurm_plugin.simulate import command
    from slurm_plugin.simulate.question import SimulationQuestion

    settings = command.settings_of(config, asked["partition"], asked["slurm"])
    chosen = {"policy": policy, "on_saturated": on_saturated}
    changes = (*(f"{key}={value}" for key, value in chosen.items() if value is not None), *changes)
    question = SimulationQuestion(settings=command.with_changes(settings, changes), **asked)
    figures = command.simulate(question, SystemClock(), show_progress=not as_json and sys.stderr.isatty())
    click.echo(json.dumps(figures) if as_json else command.as_text(figures))


@click.command(cls=Command)
@click.argument("trace", metavar="JOBS", type=click.Path(path_type=Path))
@_cluster_options
@click.option(
    "--assume-mib",
    "assumed_mib",
    type=click.IntRange(1),
    help="Peak of one-GPU jobs without a peak in JOBS; default: they get a whole GPU.",
)
@_settings_options
@json_option
def advise(config: Path | None, as_json: bool, **asked: Any) -> None:
    """Estimate what GPU sharing would have changed for JOBS, the output of sacct --parsable."""
    from slurm_plugin.simulate import advice, command
    from slurm_plugin.simulate.question import SimulationQuestion

    settings = command.settings_of(config, asked["partition"], asked["slurm"])
    question = SimulationQuestion(settings=settings, **asked)
    found = advice.advise(question, SystemClock(), show_progress=not as_json and sys.stderr.isatty())
    click.echo(advice.as_json(found) if as_json else advice.as_text(found))
