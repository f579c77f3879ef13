"""rad: the admin's command. Thin: every command calls one function and prints the result."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from slurm_plugin.admin.calibrate.command import calibrate
from slurm_plugin.admin.install.command import install, uninstall
from slurm_plugin.admin.options import CommandGroup, config_option, json_option
from slurm_plugin.admin.settings import read_settings
from slurm_plugin.admin.simulate import advise, simulate
from slurm_plugin.admin.top.command import top
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.exits import Exit

WATCH_S = 2.0


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rad-slurm")
def main() -> None:
    """Install, check and monitor RAD.

    Exit status: 0 nothing must be fixed, 1 findings, 2 wrong usage, 3 internal error.
    """


@main.command()
@config_option
@json_option
def doctor(config: Path, as_json: bool) -> None:
    """Check Slurm's configuration, rad.toml, key, radd, GPUs and units, and print a fix for each problem.

    Runs on login nodes, the controller and GPU nodes, and lists what it cannot check there. Exit status 1 if
    anything must be fixed.
    """
    from slurm_plugin.admin.doctor import report as doctoring

    findings = doctoring.diagnose(config, os.environ, SystemClock())
    click.echo(doctoring.as_json(findings) if as_json else doctoring.as_text(findings))
    if doctoring.failed(findings):
        sys.exit(Exit.FINDINGS)


@main.command()
@config_option
def reload(config: Path) -> None:
    """Reload rad.toml in radd and rad-monitor.

    An invalid file is rejected and the running configuration stays. Hooks read rad.toml for each job.
    """
    from slurm_plugin.admin.reload import reload_units

    lines, good = reload_units(config)
    click.echo("\n".join(lines))
    if not good:
        sys.exit(Exit.FINDINGS)


@main.command()
@config_option
@click.option(
    "--serve", metavar="[ADDRESS:]PORT", help="Serve the metrics to Prometheus there, until Ctrl-C."
)
def metrics(config: Path, serve: str | None) -> None:
    """Export metrics of radd and of pending GPU jobs; run it on the controller, as root.

    Without --serve, prints them once, for node_exporter's textfile collector.
    """
    try:
        from slurm_plugin.admin import metrics as telling
    except ImportError as exc:
        raise ConfigError("metrics need prometheus-client: pip install 'rad-slurm[monitor]'") from exc
    from slurm_plugin.monitor.export.web import listen

    registry = telling.registry_of(read_settings(config).config, SystemClock(), once=serve is None)
    if serve is None:
        click.echo(telling.as_text(registry), nl=False)
        return
    listen(serve, telling.app_of(registry)).serve_forever()


@main.command()
@config_option
@json_option
@click.option("--watch", is_flag=True, help=f"Refresh every {WATCH_S:g} s, until Ctrl-C.")
def status(config: Path, as_json: bool, watch: bool) -> None:
    """Show this node's GPUs: jobs, booked and used memory, SM activity."""
    from slurm_plugin.admin.status import text as status_view
    from slurm_plugin.admin.status.read import node_status
    from slurm_plugin.admin.users import name_of

    settings, clock = read_settings(config).config, SystemClock()
    if as_json:
        click.echo(status_view.as_json(node_status(settings, clock)))
        return
    while True:
        gpus = node_status(settings, clock)
        if watch:
            click.clear()
        click.echo(status_view.as_text(gpus, name_of))
        if not watch:
            return
        clock.sleep(WATCH_S)


@main.command()
@click.argument("job")
@config_option
@json_option
def why(job: str, config: Path, as_json: bool) -> None:
    """Explain why a JOB waits, or does not share its GPU, and what to do.

    Any user may run it, on any machine with Slurm's commands. It reads squeue, sinfo and each node's rad-monitor.
    """
    from slurm_plugin.admin.job_report.gather import numbered
    from slurm_plugin.admin.why import text
    from slurm_plugin.admin.why.gather import look

    settings = read_settings(config, of_other_machines=True).config
    facts = look(numbered(job, settings), settings, SystemClock())
    click.echo(text.as_json(facts) if as_json else text.as_text(facts))


@main.command()
@config_option
@json_option
@click.option("--user", "user_id", type=int, help="Show only jobs of this user id.")
def history(config: Path, as_json: bool, user_id: int | None) -> None:
    """Show the observed memory peaks that later estimates use, by model; run it on the controller."""
    from slurm_plugin.admin import history as remembering

    rows = remembering.peaks(Path(read_settings(config).config.paths.state), user_id=user_id)
    click.echo(remembering.as_json(rows) if as_json else remembering.as_text(rows))


@main.command()
@config_option
@json_option
@click.option(
    "--days",
    type=click.FloatRange(min=0, min_open=True),
    default=7,
    show_default=True,
    help="Number of days until now.",
)
def digest(config: Path, as_json: bool, days: float) -> None:
    """Sum up the last days for a mail: GPU hours booked, used and saved, reruns, users who book far too much.

    Run it on the controller, as root, for example by cron. Jobs that still run are not in it.
    """
    from slurm_plugin.admin import digest as digesting
    from slurm_plugin.admin import observe_mode
    from slurm_plugin.admin.history import runs_in
    from slurm_plugin.core.history.runs import peaks_path
    from slurm_plugin.core.logs.hook_log import EVENTS

    settings = read_settings(config).config
    now_s = SystemClock().now_s()
    observed: dict[str, int] = {}
    events = Path(settings.paths.log) / EVENTS
    try:
        observed = observe_mode.observed_in(events, from_s=now_s - days * digesting.DAY_S)
    except FileNotFoundError:
        pass
    except OSError as exc:
        raise ConfigError(f"{events}: {exc.strerror}; run this on the controller, as root") from exc
    # In observe mode no run is recorded.
    state = Path(settings.paths.state)
    runs = [] if observed and not peaks_path(state).exists() else runs_in(state)
    found = digesting.digest_of(runs, settings, now_s=now_s, days=days)
    if as_json:
        click.echo(digesting.as_json(found, observed))
        return
    click.echo(digesting.as_text(found))
    if observed:
        click.echo(observe_mode.as_text(observed))


@main.command()
@config_option
@json_option
def learn(config: Path, as_json: bool) -> None:
    """Print how the runs of all users would change the estimates, for site_quantiles; run it on the controller."""
    from slurm_plugin.admin import learn as learning

    settings = read_settings(config).config
    learned = learning.learn(settings, now_s=SystemClock().now_s())
    click.echo(learning.as_json(learned) if as_json else learning.as_text(learned, settings))


@main.command()
@click.argument("job", metavar="[JOB]", required=False)
@config_option
@json_option
@click.option("--user", metavar="NAME", help="Report on the jobs of this user that ended; no JOB.")
@click.option(
    "--days",
    type=click.FloatRange(min=0, min_open=True),
    default=7,
    show_default=True,
    help="--user: number of days until now.",
)
def report(job: str | None, config: Path, as_json: bool, user: str | None, days: float) -> None:
    """Report on a JOB, or on a user's waste.

    JOB is a job id, or ARRAY_TASK. The report shows what the job requested, its estimate, booking and usage, when and
    where it ran, which jobs shared its GPUs, and advice for the next run. With --user it shows the GPU hours that a
    user's jobs booked and did not use. Run both on the controller, as root; the first lists what is missing.
    """
    if user is not None and job is None:
        from slurm_plugin.admin import user_page as paging
        from slurm_plugin.admin.history import runs_in
        from slurm_plugin.admin.users import id_of

        settings = read_settings(config).config
        runs = runs_in(Path(settings.paths.state))
        page = paging.user_page(runs, settings, user_id=id_of(user), now_s=SystemClock().now_s(), days=days)
        click.echo(paging.as_json(page) if as_json else paging.as_text(page))
        return
    if job is None or user is not None:
        raise click.UsageError("give a job id, or --user NAME")
    from slurm_plugin.admin.job_report import text
    from slurm_plugin.admin.job_report.gather import find, numbered
    from slurm_plugin.admin.job_report.report import report_of
    from slurm_plugin.slurm.queries.job_ids import check_job_id

    check_job_id(job)
    settings = read_settings(config).config
    found = report_of(find(numbered(job, settings), settings, SystemClock()))
    click.echo(text.as_json(found) if as_json else text.as_text(found))
    if not found.known:
        sys.exit(Exit.FINDINGS)


@main.command()
def schema() -> None:
    """Print the JSON schema of rad.toml, for editors and validation."""
    import json

    from slurm_plugin.admin.schema import schema as rad_toml

    click.echo(json.dumps(rad_toml(), indent=1))


main.add_command(simulate)
main.add_command(advise)
main.add_command(top)
main.add_command(calibrate)
main.add_command(install)
main.add_command(uninstall)


if __name__ == "__main__":
    main()
