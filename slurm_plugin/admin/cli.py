"""rad: for admins and the curious. Thin: every command calls one function and prints what it returns."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

import click

from gpumemnet.rules.numbers import SITE_TABLE
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config import DEFAULT_PATH, PartitionConfig, load_config
from slurm_plugin.core.exits import Exit
from slurm_plugin.core.program_end import plain_end
from slurm_plugin.core.records import PolicyName

WATCH_S = 2.0

_config_option = click.option(
    "--config", default=DEFAULT_PATH, show_default=True, type=click.Path(path_type=Path), help="rad.toml."
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


_CLICKS_OWN = (click.ClickException, click.Abort, click.exceptions.Exit)


class _Command(click.Command):
    """A command that ends with one line and a status that says of which kind (core/program_end.py)."""

    def invoke(self, ctx: click.Context) -> object:
        with plain_end(f"rad {ctx.info_name}", passes=_CLICKS_OWN):
            return super().invoke(ctx)


class _Group(click.Group):
    command_class = _Command


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rad-slurm")
def main() -> None:
    """Look after RAD on this machine.

    Ends with status 0 if all is well, 1 after a finding, 2 for wrong usage, 3 for a bug of ours.
    """


@main.command()
@_config_option
@_json_option
def doctor(config: Path, as_json: bool) -> None:
    """Check Slurm's files, rad.toml, key, radd, GPUs and units against each other, and say each fix.

    Works on login nodes, the controller and GPU nodes, and says what it cannot see from where it runs. Ends with
    status 1 if anything must be mended.
    """
    from slurm_plugin.admin import doctor as doctoring

    findings = doctoring.diagnose(config, os.environ, SystemClock())
    click.echo(doctoring.as_json(findings) if as_json else doctoring.as_text(findings))
    if doctoring.failed(findings):
        sys.exit(Exit.FINDINGS)


@main.command()
@_config_option
def reload(config: Path) -> None:
    """Let radd and rad-monitor read rad.toml again; a wrong one is refused, and nobody is told of it.

    Hooks read rad.toml with each job, so they need no telling.
    """
    from slurm_plugin.admin.reload import reload_units

    lines, good = reload_units(config)
    click.echo("\n".join(lines))
    if not good:
        sys.exit(Exit.FINDINGS)


@main.command()
@_config_option
@_json_option
@click.option("--watch", is_flag=True, help=f"Show it again every {WATCH_S:g} s, until Ctrl-C.")
def status(config: Path, as_json: bool, watch: bool) -> None:
    """Show this node's GPUs: who is on them, booked against live, SM activity."""
    from slurm_plugin.admin import status_view
    from slurm_plugin.admin.status import node_status

    settings, clock = load_config(config), SystemClock()
    if as_json:
        click.echo(status_view.as_json(node_status(settings, clock)))
        return
    while True:
        gpus = node_status(settings, clock)
        if watch:
            click.clear()
        click.echo(status_view.as_text(gpus))
        if not watch:
            return
        clock.sleep(WATCH_S)


@main.command()
@_config_option
@click.option("--user", "user_id", type=int, help="Show the jobs of this user id alone.")
def history(config: Path, user_id: int | None) -> None:
    """Show the observed memory peaks that later estimates use; run it on the controller."""
    from slurm_plugin.admin import history as remembering

    rows = remembering.peaks(Path(load_config(config).paths.state), user_id=user_id)
    click.echo(remembering.as_text(rows))


@main.command()
@click.option(
    "--python", default="python3", show_default=True, help="A Python that has torch, as jobs use it."
)
@click.option("--deep", is_flag=True, help="Fit a table of rules of this GPU's own; takes some minutes.")
@click.option(
    "--out",
    default=str(SITE_TABLE),
    show_default=True,
    type=click.Path(path_type=Path),
    help="With --deep: the site's table; rows of other GPUs in it stay.",
)
@click.option(
    "--dry-run", is_flag=True, help="With --deep: say what would be measured, and how long it takes."
)
def calibrate(python: str, deep: bool, out: Path, dry_run: bool) -> None:
    """Measure what a PyTorch process holds on this GPU beyond its tensors; run it on an idle GPU."""
    from slurm_plugin.admin import calibrate as calibrating
    from slurm_plugin.admin import calibrate_deep

    found = shutil.which(python) or python
    if dry_run and not deep:
        raise click.UsageError("--dry-run goes with --deep; without it nothing is written")
    if deep and dry_run:
        click.echo(calibrate_deep.plan(out))
    elif deep:
        today = datetime.now(UTC).date()
        table = calibrate_deep.measure(
            found, os.environ, out=out, today=today, say=lambda line: click.echo(line, err=True)
        )
        click.echo(calibrate_deep.as_text(table, out))
    else:
        click.echo(calibrating.as_text(calibrating.measure(found, os.environ)))


@main.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="Nodes.")
@click.option("--gpus-per-node", type=click.IntRange(1), default=8, show_default=True, help="GPUs of each.")
@click.option("--gpu-memory-mib", type=click.IntRange(1), required=True, help="Usable memory of one GPU.")
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
@click.option("--config", type=click.Path(path_type=Path), help="A rad.toml whose settings are to be tried.")
@click.option("--partition", help="Its partition; needed if it has several.")
@_json_option
def simulate(
    trace: Path,
    nodes: int,
    gpus_per_node: int,
    gpu_memory_mib: int,
    policy: PolicyName | None,
    baseline: Literal["whole", "hand"] | None,
    estimates: Literal["measured", "oracle", "none"],
    on_saturated: Literal["place", "wait"] | None,
    pin: Literal["slurm", "bound", "free"],
    compress: float,
    start_up_s: float,
    backfill_s: float,
    config: Path | None,
    partition: str | None,
    as_json: bool,
) -> None:
    """Run TRACE on a cluster that is not there and print what it would take.

    TRACE is CSV with arrival_s, workload, gpus, duration_min and mem_mib, or the output of sacct --parsable2.
    """
    from slurm_plugin.admin.simulate import command

    settings = command.settings_of(config, partition)
    if policy is not None:
        settings = replace(settings, policy=policy)
    if on_saturated is not None:
        settings = replace(settings, on_saturated=on_saturated)
    question = command.Question(
        trace=trace,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        gpu_memory_mib=gpu_memory_mib,
        settings=settings,
        baseline=baseline or "rad",
        estimates=estimates,
        pin=pin,
        compress=compress,
        start_up_s=start_up_s,
        backfill_s=backfill_s,
    )
    figures = command.simulate(question, SystemClock(), show_progress=not as_json and sys.stderr.isatty())
    click.echo(command.as_json(figures) if as_json else command.as_text(figures))


@main.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), default="report.html", show_default=True, help="The page."
)
@click.option(
    "--png", type=click.Path(path_type=Path), help="A folder for the charts as PNG (needs matplotlib)."
)
def report(runs: tuple[Path, ...], out: Path, png: Path | None) -> None:
    """Compare RUNS, files that bench/replay wrote, on one page that needs nothing else."""
    from itertools import groupby

    from slurm_plugin.admin.report.charts import charts
    from slurm_plugin.admin.report.page import page
    from slurm_plugin.admin.report.runs import read_runs

    found = read_runs(runs)
    out.write_text(page(found), encoding="utf-8")
    click.echo(f"{out}: {len(found)} runs")
    if png is not None:
        from slurm_plugin.admin.report.png import write_pngs

        drawn = sum(
            write_pngs(charts(list(some)), png) for _, some in groupby(found, key=lambda run: run.trace)
        )
        click.echo(f"{png}: {drawn} charts")


@main.command()
@click.argument("jobs", type=click.Path(path_type=Path))
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="Nodes.")
@click.option("--gpus-per-node", type=click.IntRange(1), default=8, show_default=True, help="GPUs of each.")
@click.option("--gpu-memory-mib", type=click.IntRange(1), required=True, help="Usable memory of one GPU.")
@click.option("--config", type=click.Path(path_type=Path), help="A rad.toml whose settings are to be tried.")
@click.option("--partition", help="Its partition; needed if it has several.")
@_json_option
def advise(
    jobs: Path,
    nodes: int,
    gpus_per_node: int,
    gpu_memory_mib: int,
    config: Path | None,
    partition: str | None,
    as_json: bool,
) -> None:
    """Tell what sharing would have changed for JOBS, the output of sacct --parsable2, before it is switched on."""
    from slurm_plugin.admin.simulate import advice, command

    question = command.Question(
        trace=jobs,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        gpu_memory_mib=gpu_memory_mib,
        settings=command.settings_of(config, partition),
    )
    found = advice.advise(question, SystemClock())
    click.echo(advice.as_json(found) if as_json else advice.as_text(found))


@main.command()
@click.option(
    "--root", default="/", type=click.Path(path_type=Path), help="Put everything below this folder."
)
@click.option("--prefix", default="/opt/rad/venv", show_default=True, help="Where the package is installed.")
@click.option(
    "--etc", default="/etc/rad", show_default=True, help="Folder of rad.toml, key and hook scripts."
)
@click.option("--slurm", "slurm_etc", default="/etc/slurm", show_default=True, help="Folder of slurm.conf.")
@click.option("--partition", default="gpu", show_default=True, help="The partition that shares GPUs.")
@click.option(
    "--mode",
    type=click.Choice(["observe", "enforce"]),
    default="observe",
    show_default=True,
    help="What rad.toml starts with: log what would be done, or do it.",
)
@click.option("--node", help="GPU node, or nodes such as gpu[1-4]; default: this machine.")
@click.option(
    "--gpus", type=click.IntRange(1, 64), help="GPUs of such a node; counted here if there are any."
)
@click.option(
    "--gpu-memory-mib", type=click.IntRange(1), help="Usable memory of one GPU; asked from the driver."
)
@click.option(
    "--shard-mib",
    type=click.IntRange(1),
    default=PartitionConfig().shard_mib,
    show_default=True,
    help="Size of a shard.",
)
@click.option("--slurm-user", default="slurm", show_default=True, help="User that slurmctld runs as.")
@click.option("--key", "with_key", is_flag=True, help="Make the cluster's key, if there is none.")
@click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing.")
def install(
    root: Path,
    prefix: str,
    etc: str,
    slurm_etc: str,
    partition: str,
    mode: str,
    node: str | None,
    gpus: int | None,
    gpu_memory_mib: int | None,
    shard_mib: int,
    slurm_user: str,
    with_key: bool,
    dry_run: bool,
) -> None:
    """Write rad.toml, hook scripts and units; show what to add to Slurm's own files.

    A file that is already there is never overwritten: if it says something else, the difference is shown.
    """
    from slurm_plugin.admin import install as installing
    from slurm_plugin.admin.install_values import install_values

    values, cards = install_values(
        prefix=prefix,
        etc=etc,
        mode=mode,
        partition=partition,
        node=node,
        gpus=gpus,
        gpu_memory_mib=gpu_memory_mib,
        shard_mib=shard_mib,
        slurm_user=slurm_user,
        clock=SystemClock(),
    )
    places = {
        "etc": etc,
        "units": "/etc/systemd/system",
        "logrotate": "/etc/logrotate.d",
        "slurm": slurm_etc,
    }
    steps = installing.plan(values, places, root=root, gpus=cards, with_key=with_key)
    click.echo(installing.as_text(steps, verbose=dry_run))
    if not dry_run:
        installing.apply(steps)


if __name__ == "__main__":
    main()
