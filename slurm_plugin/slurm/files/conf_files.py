"""Read the few lines of Slurm's own files that a hook or radd needs, without asking slurmctld."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from slurm_plugin.slurm.files.conf_lines import pairs_of, read_lines, settings_in

_CANDIDATES = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/run/slurm/conf/slurm.conf",  # on a configless login or compute node
    "/var/spool/slurmd/conf-cache/slurm.conf",
)

TCP_TIMEOUT_S = 2.0
"""Default of TCPTimeout in slurm.conf (slurm.conf(5))."""


def find_slurm_conf(configured: str, env: Mapping[str, str]) -> Path | None:
    """Return the path of slurm.conf: as configured, from SLURM_CONF, or at one of the usual places; None if at none.

    Args:
        configured: `paths.slurm_conf` of rad.toml; empty if not set.
        env: Environment variables.
    """
    for name in filter(None, (configured, env.get("SLURM_CONF"), *_CANDIDATES)):
        if Path(name).is_file():
            return Path(name)
    return None


def controllers_of(slurm_conf: Path) -> tuple[str, ...]:
    """Return the machines that slurmctld may run on, the first in charge as long as it runs; () if they are not known.

    Args:
        slurm_conf: The file: a line SlurmctldHost= for each, or the older ControlMachine= and BackupController=.
    """
    named: list[str] = []
    for line in read_lines(slurm_conf) or []:
        key, _, value = line.partition("=")
        if key.strip().lower() in ("slurmctldhost", "controlmachine", "backupcontroller"):
            named.append(value.strip().strip('"').partition("(")[0])
    return tuple(dict.fromkeys(filter(None, named)))


def away_s(slurm_conf: Path | None) -> float:
    """Return how long a Slurm command may wait for machines without power before it asks the one in charge.

    Every command tries each machine in slurm.conf in order, for TCPTimeout each (slurm.conf(5); 2.02 s seen on 22.05.8
    with one of two).

    Args:
        slurm_conf: The file; None if it is not known.
    """
    others = 0 if slurm_conf is None else len(controllers_of(slurm_conf)) - 1
    if slurm_conf is None or others < 1:
        return 0.0
    timeout = settings_of(slurm_conf).get("tcptimeout", "")
    return others * float(timeout if timeout.isdigit() else TCP_TIMEOUT_S)


def devices_confined(slurm_conf: Path | None) -> bool:
    """Return whether a job can reach only the GPUs that Slurm chose for it.

    This needs `TaskPlugin=task/cgroup` and `ConstrainDevices=yes` in cgroup.conf (slurm.conf(5), cgroup.conf(5)).
    """
    if slurm_conf is None:
        return False
    task_plugin = settings_of(slurm_conf).get("taskplugin", "")
    constrained = settings_of(slurm_conf.with_name("cgroup.conf")).get("constraindevices", "no")
    return "cgroup" in task_plugin.lower() and constrained.lower() in ("yes", "true", "1")


def has_slurmdbd(slurm_conf: Path | None) -> bool:
    """Return whether finished jobs are kept in a database (slurm.conf(5), AccountingStorageType)."""
    if slurm_conf is None:
        return False
    return keeps_accounts(settings_of(slurm_conf))


def keeps_accounts(settings: Mapping[str, str]) -> bool:
    """Return whether slurm.conf names an accounting database.

    Args:
        settings: slurm.conf, names in lower case.
    """
    return "slurmdbd" in settings.get("accountingstoragetype", "").lower()


def enforces_accounts(settings: Mapping[str, str]) -> bool:
    """Return whether a job's account is one that its user belongs to: otherwise Slurm keeps what the user wrote.

    The other words imply associations (slurm.conf(5), AccountingStorageEnforce).

    Args:
        settings: slurm.conf, names in lower case.

    >>> enforces_accounts({"accountingstorageenforce": "limits,qos"}), enforces_accounts({})
    (True, False)
    """
    words = settings.get("accountingstorageenforce", "").lower().replace(" ", "").split(",")
    return not {"associations", "limits", "qos", "safe", "wckeys", "all", "1", "2"}.isdisjoint(words)


def lacks(settings: Mapping[str, str], name: str, word: str) -> bool:
    """Return whether a list in slurm.conf lacks a word; False if the file could not be read.

    Args:
        settings: Settings of slurm.conf, names in lower case; empty if it could not be read.
        name: Name of the setting.
        word: Word that its list should contain.

    >>> lacks({"grestypes": "gpu"}, "GresTypes", "shard"), lacks({}, "GresTypes", "shard")
    (True, False)
    >>> lacks({"jobsubmitplugins": "all_partitions, job_submit/lua"}, "JobSubmitPlugins", "lua")
    False
    """
    words = settings.get(name.lower(), "").lower().split(",")
    return bool(settings) and word not in [each.strip().rpartition("/")[2] for each in words]


def rewrites_steps(slurm_conf: Path | None) -> bool:
    """Return whether a job's srun on this machine runs cli_filter.lua with RAD's part for steps.

    Args:
        slurm_conf: The file; None if there is none.
    """
    if slurm_conf is None:
        return False
    settings = settings_of(slurm_conf)
    folders = (slurm_conf.parent / "rad", Path("/etc/slurm/rad"))
    named = bool(settings) and not lacks(settings, "CliFilterPlugins", "lua")
    return (
        named
        and slurm_conf.with_name("cli_filter.lua").is_file()
        and any((folder / "rad_step.lua").is_file() for folder in folders)
    )


_CHOOSE_PARTITIONS = ("all_partitions", "partition")
"""Slurm's plugins that give a job without a partition one, or all (src/plugins/job_submit/)."""


def chosen_after_lua(settings: Mapping[str, str]) -> str:
    """Return the plugin that chooses a job's partition after job_submit.lua has seen it without one; "" if none does.

    Args:
        settings: Settings of slurm.conf, names in lower case.

    >>> chosen_after_lua({"jobsubmitplugins": "lua,all_partitions"})
    'all_partitions'
    >>> chosen_after_lua({"jobsubmitplugins": "all_partitions,lua"})
    ''
    """
    words = _submit_plugins(settings)
    later = words[words.index("lua") + 1 :] if "lua" in words else []
    return next((word for word in later if word in _CHOOSE_PARTITIONS), "")


def chosen_by_plugin(settings: Mapping[str, str]) -> bool:
    """Return whether a job that names no partition may start in another than the default one.

    Args:
        settings: Settings of slurm.conf, names in lower case.

    >>> chosen_by_plugin({"jobsubmitplugins": "all_partitions,lua"}), chosen_by_plugin({"jobsubmitplugins": "lua"})
    (True, False)
    """
    return not set(_CHOOSE_PARTITIONS).isdisjoint(_submit_plugins(settings))


def _submit_plugins(settings: Mapping[str, str]) -> list[str]:
    words = settings.get("jobsubmitplugins", "").lower().split(",")
    return [word.strip().rpartition("/")[2] for word in words]


def settings_of(path: Path) -> dict[str, str]:
    """Return the settings of a file and of the files that it includes, names in lower case; the last one counts."""
    return settings_in(read_lines(path) or [])


def gres_of_nodes(path: Path) -> tuple[str, ...]:
    """Return `Gres=` of every NodeName line that has one, in lower case."""
    nodes = [line for line in read_lines(path) or [] if line.lower().startswith("nodename")]
    return tuple(pairs["gres"].lower() for pairs in map(pairs_of, nodes) if "gres" in pairs)


def why_no_shards(settings: Mapping[str, str], node_gres: Sequence[str]) -> str | None:
    """Return why Slurm would refuse a request for shards; None if no reason is known.

    Args:
        settings: slurm.conf, names in lower case; empty if it cannot be read, which is no reason.
        node_gres: `Gres=` of its NodeName lines, in lower case.

    >>> why_no_shards({"grestypes": "gpu,shard"}, ["gpu:4", "gpu:2"])
    'no NodeName line has shards in its Gres'
    """
    if lacks(settings, "GresTypes", "shard"):
        return "GresTypes has no shard"
    if node_gres and not any("shard:" in gres for gres in node_gres):
        return "no NodeName line has shards in its Gres"
    return None
