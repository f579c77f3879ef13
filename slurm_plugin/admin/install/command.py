"""`rad install` and `rad uninstall`: the first and the last command of an admin."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_plugin.admin.options import Command
from slurm_plugin.admin.server_choices import CHOICES
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.exits import Exit
from slurm_plugin.core.records.submission import ServerScope

if TYPE_CHECKING:
    from slurm_plugin.admin.install.slurm_files import SlurmFilesPlan
    from slurm_plugin.admin.install.transaction import Write
    from slurm_plugin.admin.own_files.steps import Step

slurm_option = click.option(
    "--slurm",
    "slurm_etc",
    help="Folder of slurm.conf; default: that of $SLURM_CONF or rad.toml, else /etc/slurm.",
)


@click.command(cls=Command)
@click.option(
    "--root", default="/", type=click.Path(path_type=Path), help="Write everything below this folder."
)
@click.option(
    "--prefix", default="/opt/rad/venv", show_default=True, help="Virtual environment of the package."
)
@click.option(
    "--etc", default="/etc/rad", show_default=True, help="Folder of rad.toml, key and hook scripts."
)
@slurm_option
@click.option("--partition", help="The partition that shares GPUs; default: from rad.toml, else gpu.")
@click.option(
    "--mode",
    type=click.Choice(["observe", "enforce"]),
    default="observe",
    show_default=True,
    help="Initial mode in rad.toml: log decisions only, or apply them.",
)
@click.option("--node", help="GPU node, or nodes such as gpu[1-4]; default: this machine.")
@click.option(
    "--gpus", type=click.IntRange(1, 64), help="GPUs per node; default: as counted on this machine."
)
@click.option(
    "--gpu-memory-mib",
    type=click.IntRange(1),
    help="Usable memory of one GPU; default: from the driver, else from rad.toml.",
)
@click.option(
    "--shard-mib",
    type=click.IntRange(1),
    default=PartitionConfig().shard_mib,
    show_default=True,
    help="Size of a shard.",
)
@click.option(
    "--mps-server",
    type=click.Choice(list(CHOICES)),
    default=PartitionConfig().mps_server,
    show_default=True,
    help="Which jobs on a GPU share one MPS server: those of a user, of a Slurm account, or all.",
)
@click.option("--slurm-user", help="User that slurmctld runs as; default: from slurm.conf, else slurm.")
@click.option("--key", "with_key", is_flag=True, help="Create the cluster key if there is none.")
@click.option(
    "--edit-slurm",
    is_flag=True,
    help="Also edit slurm.conf and gres.conf, and create the key.",
)
@click.option("--dry-run", is_flag=True, help="Show changes without writing them.")
def install(
    root: Path,
    prefix: str,
    etc: str,
    slurm_etc: str | None,
    partition: str | None,
    mode: str,
    node: str | None,
    gpus: int | None,
    gpu_memory_mib: int | None,
    shard_mib: int,
    mps_server: ServerScope,
    slurm_user: str | None,
    with_key: bool,
    edit_slurm: bool,
    dry_run: bool,
) -> None:
    """Write rad.toml, hook scripts and units, and show what to add to Slurm's files.

    Existing files are never overwritten; differences are shown. With --edit-slurm, either all of Slurm's files are
    changed or, if one cannot be parsed, nothing is written and the exit status is 1.
    """
    from slurm_plugin.admin.install import backup
    from slurm_plugin.admin.install import plan as installing
    from slurm_plugin.admin.install.defaults import found, named_slurm_conf, slurm_folder
    from slurm_plugin.admin.install.slurm_files_text import as_text as changes_text
    from slurm_plugin.admin.own_files.steps import as_text
    from slurm_plugin.admin.own_files.values import install_values
    from slurm_plugin.admin.users import id_of
    from slurm_plugin.slurm.files.conf_files import keeps_accounts, settings_of

    if edit_slurm and root != Path("/"):
        raise click.UsageError("--edit-slurm changes the files of this machine; it takes no --root")
    if slurm_user is not None:
        id_of(slurm_user)  # radd of an unknown user would not start, and the shim would refuse its answers
    rad_toml = root / etc.lstrip("/") / "rad.toml"
    _undo_unfinished(rad_toml.parent, dry_run=dry_run)
    slurm_etc = slurm_folder(slurm_etc, root, os.environ, rad_toml)
    there = found(rad_toml, root / slurm_etc.lstrip("/") / "slurm.conf", partition)
    values, node_gpus = install_values(
        prefix=prefix,
        etc=etc,
        mode=mode,
        partition=there.partition,
        node=node,
        gpus=gpus,
        gpu_memory_mib=gpu_memory_mib,
        known_memory_mib=there.gpu_memory_mib,
        shard_mib=shard_mib,
        mps_server=mps_server,
        slurm_user=slurm_user or there.slurm_user,
        slurm_conf=named_slurm_conf(slurm_etc),
        clock=SystemClock(),
    )
    places = {
        "etc": etc,
        "units": "/etc/systemd/system",
        "logrotate": "/etc/logrotate.d",
        "slurm": slurm_etc,
    }
    steps = installing.plan(values, places, root=root, gpus=node_gpus, with_key=with_key or edit_slurm)
    slurm_conf = Path(slurm_etc, "slurm.conf")
    reads_slurm = edit_slurm or (root == Path("/") and slurm_conf.is_file())
    if reads_slurm:  # its own lines are shown, not those of a site that could be any
        unseen = {"show", "change"} | (set() if keeps_accounts(settings_of(slurm_conf)) else {"count"})
        steps = [step for step in steps if step.action not in unseen]
    changed = _slurms_files(steps, values, places, node_gpus, edited=edit_slurm) if reads_slurm else None
    click.echo(as_text(steps, verbose=dry_run, edited=edit_slurm))
    if changed is not None:
        click.echo(changes_text(changed, places, dry_run=dry_run, edited=edit_slurm))
    if edit_slurm and changed is not None and changed.refused:
        sys.exit(Exit.FINDINGS)
    after = {} if changed is None else dict(changed.after)
    steps = installing.fitted(steps, after)
    wanted = installing.writes(steps, places, root=root)
    if edit_slurm and changed is not None:
        wanted += backup.writes(Path(etc), changed.before, after, runs=changed.runs)
    _change(wanted, root / etc.lstrip("/"), dry_run=dry_run)
    if not dry_run:
        installing.have_loaded(steps)
    if any(step.action == "write" and step.path.name == "rad.toml" for step in steps):
        click.echo(f'mps_server = "{mps_server}": {CHOICES[mps_server]}; --mps-server chooses.')


def _change(wanted: Sequence[Write], etc: Path, *, dry_run: bool) -> None:
    """Change all files or none; if that fails, exit with status 1 and change nothing."""
    from slurm_plugin.admin.install.transaction import change_together, hindered

    if not dry_run:
        change_together(wanted, etc)
    elif found := hindered(wanted, etc):
        click.echo("\n".join(["nothing would be changed, because not all of it can be:", *found]))
        sys.exit(Exit.FINDINGS)


def _undo_unfinished(etc: Path, *, dry_run: bool) -> None:
    """Undo an interrupted run first, before any file is read."""
    from slurm_plugin.admin.install.transaction import undo_unfinished, unfinished
    from slurm_plugin.core.errors import ConfigError

    if not dry_run:
        for line in undo_unfinished(etc):
            click.echo(line)
    elif unfinished(etc):
        raise ConfigError(
            f"{etc}: an earlier run was interrupted; run this without --dry-run to undo it first"
        )


def _slurms_files(
    steps: Sequence[Step],
    values: Mapping[str, str],
    places: Mapping[str, str],
    node_gpus: Sequence[Mapping[str, str]],
    *,
    edited: bool,
) -> SlurmFilesPlan:
    """Return the changes of Slurm's files; only those that will be made are tried first."""
    from slurm_plugin.admin.install import slurm_files
    from slurm_plugin.admin.install.plan import gpus_of_nodes
    from slurm_plugin.admin.own_files.steps import SECRET
    from slurm_plugin.slurm.files.conf_files import settings_of
    from slurm_plugin.slurm.files.installed import installed_version, plugins
    from slurm_plugin.slurm.files.trial import try_start

    slurm_conf = Path(places["slurm"], "slurm.conf")
    written = {
        step.path: step.content.decode()
        for step in steps
        if step.action in ("write", "update") and step.mode != SECRET
    }
    plan = slurm_files.plan(
        slurm_conf=slurm_conf,
        config_path=Path(values["config"]),
        written=written,
        version=installed_version(),
        plugins=plugins(settings_of(slurm_conf)) if slurm_conf.exists() else None,
        gpus=gpus_of_nodes(values, node_gpus),
    )
    if edited and plan.after and not plan.refused:
        plan = replace(plan, trial=try_start(slurm_conf, {**written, **plan.after}))
    return plan


@click.command(cls=Command)
@click.option("--root", default="/", type=click.Path(path_type=Path), help="Root folder of the installation.")
@click.option(
    "--etc", default="/etc/rad", show_default=True, help="Folder of rad.toml, key and hook scripts."
)
@slurm_option
@click.option("--edit-slurm", is_flag=True, help="Also remove RAD's lines from slurm.conf and gres.conf.")
@click.option("--dry-run", is_flag=True, help="Show changes without making them.")
def uninstall(root: Path, etc: str, slurm_etc: str | None, edit_slurm: bool, dry_run: bool) -> None:
    """Remove what `rad install` wrote, once Slurm's files no longer refer to it.

    Files that were changed since and the cluster key are kept. Exit status 1 as long as Slurm refers to one of RAD's
    files; with --edit-slurm also, and without any change, as long as jobs hold or wait for shards.
    """
    from slurm_plugin.admin.install import uninstall as uninstalling
    from slurm_plugin.admin.install.defaults import named_slurm_conf, slurm_folder
    from slurm_plugin.admin.install.uninstall_steps import as_text as removal_text
    from slurm_plugin.admin.install.uninstall_steps import shard_jobs, why_not_yet
    from slurm_plugin.slurm.queries.live import ask_slurm, slurm_is_here

    _undo_unfinished(root / etc.lstrip("/"), dry_run=dry_run)
    folder = slurm_folder(slurm_etc, root, os.environ, root / etc.lstrip("/") / "rad.toml")
    conf = named_slurm_conf(folder)
    asking = {**os.environ, "SLURM_CONF": conf} if conf and Path(conf).is_file() else os.environ
    running: Mapping[str, str] | None = {}
    if root == Path("/") and slurm_is_here():  # otherwise nothing could be started
        live = ask_slurm(asking)
        running = None if live is None else live.settings
    removal = uninstalling.plan(root=root, etc=etc, slurm=folder, running=running)
    jobs = shard_jobs(asking) if running and removal.takes_shards else None
    if edit_slurm and (why := why_not_yet(removal, jobs)):
        click.echo(f"nothing was changed: {why}")
        sys.exit(Exit.FINDINGS)
    click.echo(removal_text(removal, edited=edit_slurm and not dry_run, jobs=jobs))
    edits = removal.edits if edit_slurm else ()
    _change(uninstalling.writes(removal, edits), removal.manifest.parent, dry_run=dry_run)
    if not dry_run:
        uninstalling.tidy(removal)
    if removal.edits or removal.named:
        sys.exit(Exit.FINDINGS)
