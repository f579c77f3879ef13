"""Apply `rad doctor`'s fixes to Slurm's files in memory, for `rad install --edit-slurm`.

Each step applies one finding's fix exactly; then everything is checked again, so the two can never disagree. Decisions
of the site (which jobs share a node, what counts as memory, billing) are left to it. If anything remains that shards
need, nothing at all is changed: a node whose gres.conf has less than slurm.conf is drained.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurm_plugin.admin.doctor.checks.device_isolation import check_apart
from slurm_plugin.admin.doctor.checks.gpu_memory import check_kinds
from slurm_plugin.admin.doctor.checks.gres_conf import check_gres, check_mps_gres
from slurm_plugin.admin.doctor.checks.limits import check_tracked
from slurm_plugin.admin.doctor.checks.lua import check_lua
from slurm_plugin.admin.doctor.checks.partitions import check_names, check_nodes, check_partitions
from slurm_plugin.admin.doctor.checks.slurm_conf import check_hooks, check_slurm_conf
from slurm_plugin.admin.doctor.checks.standby import check_shard_types
from slurm_plugin.admin.doctor.collect import hook_scripts
from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.finding import Finding
from slurm_plugin.admin.doctor.fixes import LineChange, record
from slurm_plugin.core.config.load import parse_text
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.slurm.files.conf_files import controllers_of
from slurm_plugin.slurm.files.conf_lines import expand, lines_of, read_conf, text_of
from slurm_plugin.slurm.files.trial import TrialResult
from slurm_plugin.slurm.versions import DEFAULT_PARAMETERS

CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    check_names,
    check_slurm_conf,
    check_hooks,
    check_lua,
    check_nodes,
    check_gres,
    check_mps_gres,
    check_tracked,
    check_partitions,
    check_shard_types,
)
_ALSO = (
    "CliFilterPlugins=",
    "PrologFlags=",
    "SelectTypeParameters=",
    "NodeName=",
    "AccountingStorageTRES=",
    "gpu_type =",
)
"""Lines that are added although Slurm could share without them, or on other nodes."""
_THE_SITES = ("SelectType=", "PartitionName=", "[partition")
"""Lines that only the site changes: SelectType loses all jobs, the others decide which jobs share a node."""
_MOST_STEPS = 2000
_HEAD_LINES = 20
_GENERATED = re.compile(
    r"(?i)\b(auto\w*|machine)?[- ]?generated\b|\bmanaged\b|\bdo(n't| not) (edit|modify|change|touch)\b"
    r"|\b(will be|gets?|is) overwritten\b"
)
"""How files say in their first comments that a program writes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmFilesPlan:
    """Planned changes of Slurm's files.

    Attributes:
        before: Text of each file that changes; None for a new file.
        after: New text of each file.
        left: Findings of `rad doctor` on these files that would remain.
        warnings: Its other findings: whole-GPU jobs may meet shared ones. The site decides how GPUs are distinguished.
        trial: Whether slurmctld starts with the new files; None if it was not tried.
    """

    before: Mapping[Path, str | None] = field(default_factory=dict)
    after: Mapping[Path, str] = field(default_factory=dict)
    left: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    trial: TrialResult | None = None

    @property
    def runs(self) -> tuple[Path, ...]:
        """Return the new files that Slurm starts as programs."""
        new = (path for path, text in self.before.items() if text is None)
        return tuple(path for path in new if self.after[path].startswith("#!"))

    @property
    def generated(self) -> tuple[str, ...]:
        """Return, for each file that changes and has a comment that a program writes it, that comment."""
        texts = ((path, text) for path, text in self.before.items() if text is not None)
        return tuple(
            f"{path}:{number}: {line.strip()}"
            for path, text in texts
            for number, line in enumerate(lines_of(text)[:_HEAD_LINES], 1)
            if line.lstrip().startswith("#") and _GENERATED.search(line)
        )

    @property
    def refused(self) -> bool:
        """Return whether a finding remains that the site must fix first, or slurmctld would not start."""
        return bool(self.trial and self.trial.fatal) or any(
            finding.level in ("fail", "unseen") for finding in self.left
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpus:
    """GPUs of nodes that slurm.conf does not have yet.

    Attributes:
        nodes: The nodes, in Slurm's short form.
        gres: Their Gres.
        lines: Their lines of gres.conf.
    """

    nodes: str
    gres: str
    lines: str


def plan(
    *,
    slurm_conf: Path,
    config_path: Path,
    written: Mapping[Path, str],
    version: tuple[int, int, int] | None,
    plugins: frozenset[str] | None,
    gpus: NodeGpus | None = None,
) -> SlurmFilesPlan:
    """Return the planned changes of Slurm's files.

    Args:
        slurm_conf: The site's slurm.conf.
        config_path: rad.toml.
        written: Files that `rad install` writes now, by path; only rad.toml among them may still change.
        version: Version of the installed Slurm.
        plugins: Names of its plugins.
        gpus: GPUs of nodes that may lack them in slurm.conf; GPUs in slurm.conf take precedence.

    Raises:
        ConfigError: There is no slurm.conf, or rad.toml cannot be used.
    """
    texts: dict[Path, str] = dict(written)

    def read(path: Path) -> str:
        return texts[path] if path in texts else text_of(path)

    def look() -> tuple[Facts, list[Finding]]:
        facts = _facts(slurm_conf, config_path, read, tuple(texts), version, plugins)
        found = [each for check in CHECKS for each in check(facts)]
        if config_path in written:  # sizes of GPUs that it does not know would be made up
            found += [each if each.actions else replace(each, level="fail") for each in check_kinds(facts)]
        else:
            found += check_kinds(facts)
        return facts, [each for each in found if each.level != "ok"]

    if gpus is not None:
        texts |= _with_gpus(slurm_conf, gpus, read)
    facts, found = look()
    for _ in range(_MOST_STEPS):
        changes = next((each for each in map(_changes, found) if _allowed(each, facts, written)), ())
        if not changes:
            break
        for change in sorted(changes, key=lambda change: -change.first):
            old = read(change.path) if change.path in texts or change.path.exists() else ""
            texts[change.path] = change.applied(old)
        facts, found = look()
    changed = {path: text for path, text in texts.items() if written.get(path) != text}
    before = {path: written.get(path) or (text_of(path) if path.exists() else None) for path in changed}
    warnings = tuple(finding for finding in check_apart(facts) if finding.level != "ok")
    return SlurmFilesPlan(before=before, after=changed, left=tuple(found), warnings=warnings)


def _facts(
    slurm_conf: Path,
    config_path: Path,
    read: Callable[[Path], str],
    planned: tuple[Path, ...],
    version: tuple[int, int, int] | None,
    plugins: frozenset[str] | None,
) -> Facts:
    """Return the facts from files alone; running daemons are not queried, since they run with the old files."""
    slurm = read_conf(slurm_conf, read)
    if slurm is None:
        raise ConfigError(
            f"{slurm_conf}: cannot be read; add --slurm FOLDER, or run this where slurm.conf is"
        )
    config_text = read(config_path)
    scripts = hook_scripts(slurm, slurm_conf, version, planned)
    hooks = {
        name: "\n".join(text for path in paths if (text := _text(path, read)) is not None) or None
        for name, paths in scripts.items()
    }
    lua = {name: _text(slurm_conf.with_name(f"{name}.lua"), read) for name in ("job_submit", "cli_filter")}
    return Facts(
        config_path=config_path,
        config=parse_text(config_text, origin=str(config_path)),
        config_text=config_text,
        slurm_conf_path=slurm_conf,
        slurm=slurm,
        controllers=controllers_of(slurm_conf),
        gres=read_conf(slurm_conf.with_name("gres.conf"), read),
        cgroup=read_conf(slurm_conf.with_name("cgroup.conf"), read),
        version=version,
        plugins=plugins,
        hooks=hooks,
        lua=lua,
        lua_sockets=("",),
    )


def _text(path: Path, read: Callable[[Path], str]) -> str | None:
    try:
        return read(path)
    except OSError:
        return None


def _changes(finding: Finding) -> tuple[LineChange, ...]:
    """Return the lines that fix a finding, if sharing needs it."""
    changes = tuple(action for action in finding.actions if isinstance(action, LineChange))
    wanted = finding.level == "fail" or any(change.new.lstrip().startswith(_ALSO) for change in changes)
    return changes if wanted else ()


def _allowed(changes: tuple[LineChange, ...], facts: Facts, written: Mapping[Path, str]) -> bool:
    return bool(changes) and all(
        not change.new.lstrip().startswith(_THE_SITES)
        and (change.path != facts.config_path or change.path in written)  # otherwise the file is the admin's
        and _only_more(change.new, facts)
        for change in changes
    )


def _only_more(new: str, facts: Facts) -> bool:
    """Return whether a change of the consumable resources only adds to them; what jobs may take is up to the site."""
    name, _, value = new.partition("=")
    if name.strip().lower() != "selecttypeparameters" or facts.slurm is None:
        return True
    now = facts.slurm.settings.get("selecttypeparameters", DEFAULT_PARAMETERS).lower().split(",")
    return now != [""] and {word.strip() for word in now} <= set(value.lower().split(","))


def _with_gpus(slurm_conf: Path, gpus: NodeGpus, read: Callable[[Path], str]) -> dict[Path, str]:
    """Return slurm.conf's files with GPUs added to nodes that have none there, and gres.conf with their lines."""
    conf = read_conf(slurm_conf, read)
    named = set(expand(gpus.nodes))
    rows = [] if conf is None else [(index, row) for index, row in enumerate(conf.lines) if "nodename" in row]
    if conf is None or any("gpu" in row.get("gres", "") for _, row in rows):
        return {}
    actions = [
        record(conf, index, slurm_conf, "Gres", ",".join(filter(None, (row.get("gres"), gpus.gres))))
        for index, row in rows
        if named.issuperset(expand(row["nodename"]))
    ]
    texts: dict[Path, str] = {}
    for change in actions:  # each has its line and stays on it
        texts[change.path] = change.applied(texts.get(change.path) or read(change.path))
    if actions:
        path = slurm_conf.with_name("gres.conf")
        texts[path] = f"{(_text(path, read) or '').rstrip()}\n{gpus.lines}\n".lstrip()
    return texts
