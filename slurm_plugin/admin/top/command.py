"""`rad top` on the command line."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

import click

from slurm_plugin.admin.options import Command, config_option, json_option
from slurm_plugin.admin.settings import read_settings
from slurm_plugin.core.booking.gres_text import parse_gres
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import ConfigError, SlurmError
from slurm_plugin.monitor.export.web import PORT, split_address

NARROWEST = 80


@click.command(cls=Command)
@config_option
@json_option
@click.option("--html", "as_html", is_flag=True, help="Print one web page without script, for a web server.")
@click.option("--once", is_flag=True, help="Print one screen and exit, as when the output is no terminal.")
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NAME[=HOST:PORT]",
    help="Show only this node; may be repeated. Default: all nodes with GPUs in Slurm.",
)
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port of rad-monitor on every node; default: from rad.toml."
)
@click.option(
    "--every",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.2, 3600),
    help="Refresh interval, in seconds.",
)
def top(
    config: Path,
    as_json: bool,
    as_html: bool,
    once: bool,
    nodes: tuple[str, ...],
    port: int | None,
    every: float,
) -> None:
    """Monitor all nodes: GPUs, jobs, users, the queue and recoveries. Keys as in htop; F1 lists them.

    Reads each node's rad-monitor over HTTP (telemetry.serve in rad.toml) and Slurm's queue. Changes nothing.
    """
    from slurm_plugin.admin.top.gather import Gatherer
    from slurm_plugin.slurm.queries.queue import waiting_jobs

    used = read_settings(config, of_other_machines=True)
    settings, conf = used.config, used.config.paths.slurm_conf
    gatherer = Gatherer(
        places(nodes, port or port_of(settings), found=lambda: gpu_nodes(conf)),
        clock=SystemClock(),
        queue=lambda: waiting_jobs(slurm_conf=conf),
    )
    if as_json:
        click.echo(json.dumps({"version": 1, **asdict(gatherer.look())}))
        return
    if as_html:
        from slurm_plugin.monitor.export.page import page

        seen = gatherer.look()
        shown = [(node.name, node.status, node.trouble) for node in seen.nodes]
        click.echo(page(shown, time_s=seen.time_s), nl=False)
        return
    if once or not sys.stdout.isatty():
        from slurm_plugin.admin.top.frame import ABOVE, BELOW, as_text, frame
        from slurm_plugin.admin.top.view import View, rows_of

        fleet, view = gatherer.look(), View()
        width = max(NARROWEST, shutil.get_terminal_size((120, 0)).columns)
        height = ABOVE + max(1, len(rows_of(fleet, view))) + BELOW
        click.echo("\n".join(as_text(frame(fleet, view, width=width, height=height)).splitlines()[:-BELOW]))
        return
    from slurm_plugin.admin.top.terminal import watch
    from slurm_plugin.admin.top.view import View

    watch(gatherer.look, every_s=every, view=View(notice=used.trouble))


def port_of(config: Config) -> int:
    """Return the port of every rad-monitor in rad.toml, or the default port."""
    serve = config.telemetry.serve
    return split_address(serve)[1] if serve else PORT


def places(
    nodes: tuple[str, ...], port: int, *, found: Callable[[], Mapping[str, str]]
) -> Mapping[str, tuple[str, int]]:
    """Return host and port of each node's rad-monitor, by node name.

    Args:
        nodes: NAME or NAME=HOST:PORT, as given by the user.
        port: Port for nodes without one.
        found: Queries Slurm for the address of each node with GPUs.

    Raises:
        ConfigError: A node is malformed, or there is none.
    """
    addresses = {}
    for word in nodes:
        name, _, place = word.partition("=")
        host, at = split_address(place) if place else (name, port)
        if not name or not host:
            raise ConfigError(f"--node {word}: write it like gpu1 or gpu1=10.0.0.5:{PORT}")
        addresses[name] = (host, at)
    if not nodes:
        addresses = {name: (address, port) for name, address in found().items()}
    if not addresses:
        raise ConfigError("Slurm has no node with GPUs; name one with --node")
    return addresses


def gpu_nodes(slurm_conf: str) -> dict[str, str]:
    """Return the address that Slurm uses for each node with GPUs, by name."""
    from slurm_plugin.slurm.commands import SlurmCommands

    try:
        views = SlurmCommands(slurm_conf=slurm_conf, timeout_s=10.0).nodes()
    except SlurmError as exc:
        raise ConfigError(f"Slurm does not say which nodes there are ({exc}); name them with --node") from exc
    with_gpus = [view for view in views if any(item.name == "gpu" for item in parse_gres(view.gres))]
    return {view.name: view.address or view.name for view in sorted(with_gpus, key=lambda view: view.name)}
