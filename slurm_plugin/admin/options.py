"""Shared parts of the commands of `rad`: exit status and options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from slurm_plugin.core.config.load import DEFAULT_PATH
from slurm_plugin.core.entry_point import plain_end

_CLICKS_OWN = (click.ClickException, click.Abort, click.exceptions.Exit)


class Command(click.Command):
    """A command that ends with one line and a status for the kind of error (core/entry_point.py)."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        with plain_end(f"rad {ctx.info_name}", passes=_CLICKS_OWN):
            return super().invoke(ctx)


class CommandGroup(click.Group):
    """A group of such commands."""

    command_class = Command


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def all_of(*options: Decorator) -> Decorator:
    """Return one decorator for several options; --help shows them in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


config_option = click.option(
    "--config",
    default=DEFAULT_PATH,
    show_default=True,
    type=click.Path(path_type=Path),
    help="rad.toml.",
    envvar="RAD_CONFIG",
    show_envvar=True,
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
