"""rad: for admins and the curious. Thin: every command calls one function and prints what it returns."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import click

from gpumemnet.rules.numbers import SITE_TABLE
from slurm_plugin.admin.options import Group, config_option, json_option
from slurm_plugin.admin.simulate.cli import advise, simulate
from slurm_plugin.admin.top.command import top
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config import PartitionConfig, load_config
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.exits import Exit

WATCH_S = 2.0


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rad-slurm")
def main() -> None:
    """Look after RAD on this machine.

    Ends with status 0 if all is well, 1 after a finding, 2 for wrong usage, 3 for a bug of ours.
    """


@main.command()
@config_option
@json_option
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
@config_option
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
@config_option
@click.option("--serve", metavar="[ADDRESS:]PORT", help="Answer Prometheus there, until Ctrl-C.")
def metrics(config: Path, serve: str | None) -> None:
    """Tell Prometheus of radd's health and of who waits for GPUs; run it on the controller, as root.

    Prints them once without --serve, for the text files of a node_exporter.
    """
    try:
        from slurm_plugin.admin import controller_metrics as telling
    except ImportError as exc:
        raise ConfigError("metrics need prometheus-client: pip install 'rad-slurm[monitor]'") from exc
    from slurm_plugin.monitor.web import listen

    registry = telling.registry_of(load_config(config), SystemClock())
    if serve is None:
        click.echo(telling.as_text(registry), nl=False)
        return
    listen(serve, telling.app_of(registry)).serve_forever()


@main.command()
@config_option
@json_option
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
@config_option
@json_option
@click.option("--user", "user_id", type=int, help="Show the jobs of this user id alone.")
def history(config: Path, as_json: bool, user_id: int | None) -> None:
    """Show the observed memory peaks that later estimates use, by model; run it on the controller."""
    from slurm_plugin.admin import history as remembering

    rows = remembering.peaks(Path(load_config(config).paths.state), user_id=user_id)
    click.echo(remembering.as_json(rows) if as_json else remembering.as_text(rows))


@main.command()
@config_option
@json_option
@click.option("--write", is_flag=True, help="Keep it for radd at once, which else learns once an hour.")
def learn(config: Path, as_json: bool, write: bool) -> None:
    """Show what the runs of all users change of the estimates (learn = true in [features]); on the controller."""
    from slurm_plugin.admin import learn as learning
    from slurm_plugin.radd.learn import write as keep

    settings = load_config(config)
    learned = learning.learned_of(settings, now_s=SystemClock().now_s())
    click.echo(learning.as_json(learned) if as_json else learning.as_text(learned, settings))
    if write:
        keep(settings, learned)


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
@click.argument("what", metavar="JOB | RUN...", nargs=-1, required=True)
@config_option
@json_option
@click.option(
    "--out", type=click.Path(path_type=Path), default="report.html", show_default=True, help="RUNs: the page."
)
@click.option(
    "--png", type=click.Path(path_type=Path), help="RUNs: a folder for the charts as PNG (needs matplotlib)."
)
def report(what: tuple[str, ...], config: Path, as_json: bool, out: Path, png: Path | None) -> None:
    """Tell of a JOB, or compare RUNs.

    JOB is a job id: what it asked, was estimated, booked and used, when and where it ran, beside whom, and what to
    do next time. Run it on the controller, as root; it says what it could not see. RUNs are files that bench/replay
    wrote: they are compared on one page that needs nothing else.
    """
    if len(what) == 1 and what[0].isdecimal() and not Path(what[0]).exists():
        from slurm_plugin.admin.job_report import text
        from slurm_plugin.admin.job_report.gather import find
        from slurm_plugin.admin.job_report.story import story_of

        story = story_of(find(int(what[0]), load_config(config), SystemClock()))
        click.echo(text.as_json(story) if as_json else text.as_text(story))
        return
    if as_json:
        raise click.UsageError("--json goes with a job id")
    from slurm_plugin.admin.report.command import compare

    click.echo("\n".join(compare(tuple(map(Path, what)), out=out, png=png)))


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
    from slurm_plugin.admin.install_steps import as_text
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
    click.echo(as_text(steps, verbose=dry_run))
    if not dry_run:
        installing.apply(steps, places, root=root)


@main.command()
@click.option(
    "--root", default="/", type=click.Path(path_type=Path), help="Everything lies below this folder."
)
@click.option(
    "--etc", default="/etc/rad", show_default=True, help="Folder of rad.toml, key and hook scripts."
)
@click.option("--slurm", "slurm_etc", default="/etc/slurm", show_default=True, help="Folder of slurm.conf.")
@click.option("--edit-slurm", is_flag=True, help="Take our lines out of slurm.conf and gres.conf, too.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
def uninstall(root: Path, etc: str, slurm_etc: str, edit_slurm: bool, dry_run: bool) -> None:
    """Take back what `rad install` wrote, once Slurm's own files name it no longer.

    A file that was changed since stays, and so does the cluster's key. Ends with status 1 as long as Slurm names a
    file of ours.
    """
    from slurm_plugin.admin import uninstall as uninstalling
    from slurm_plugin.core.shell import has_program
    from slurm_plugin.slurm.live import ask_slurm

    running: Mapping[str, str] | None = {}
    if root == Path("/") and has_program("scontrol"):  # else no Slurm is here that could start anything
        live = ask_slurm(os.environ)
        running = None if live is None else live.settings
    removal = uninstalling.plan(root=root, etc=etc, slurm=slurm_etc, running=running)
    click.echo(uninstalling.as_text(removal, edited=edit_slurm and not dry_run))
    if not dry_run:
        if edit_slurm:
            uninstalling.edit(removal.edits)
        uninstalling.apply(removal)
    if removal.edits or removal.named:
        sys.exit(Exit.FINDINGS)


@main.command()
def schema() -> None:
    """Print the JSON schema of rad.toml, for editors and a site's own checks."""
    import json

    from slurm_plugin.admin.schema import schema as rad_toml

    click.echo(json.dumps(rad_toml(), indent=1))


main.add_command(simulate)
main.add_command(advise)
main.add_command(top)


if __name__ == "__main__":
    main()
