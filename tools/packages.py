"""Build the packages for a cluster's machines: one tree of files, as a .deb and as an .rpm."""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Mapping
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path

from lab.daemons import LabError
from lab.install import install_packages
from slurm_plugin.admin.own_files.templates import render
from slurm_plugin.core.config.load import Paths
from slurm_plugin.core.errors import CommandError
from slurm_plugin.core.process.run import find_program, run
from tools.release import PYTHONS, REQUIREMENTS, build_node

FOLDER = Path("distributions") / "packages"
PREFIX = Path("/opt/rad/venv")
SITE = PREFIX / "lib" / "python3" / "site-packages"
UNITS = Path("/usr/lib/systemd/system")
ON_PATH = ("rad", "rad-estimate")
"""Programs that people run; daemons are started by their units."""
MANUAL = ("README.md", "CHANGELOG.md", "LICENSE", "docs/*.md", "docs/admin/*.md")
"""The manual in the package, as file patterns in the checkout."""
_STEP_S = 300.0


def packages(
    checkout: Path, work: Path, dist: Path, *, python: Path, environment: Mapping[str, str]
) -> list[Path]:
    """Build the packages of the last commit: the .deb, and the .rpm if rpmbuild is here or can be installed.

    Args:
        checkout: A clone with its history.
        work: A folder for intermediate files.
        dist: Where the packages go; emptied first.
        python: A Python with pip, setuptools and setuptools-scm.
        environment: What pip, apt and git need of the caller's environment.

    Raises:
        CommandError: A build failed.
        LabError: As for `stage_tree`.
    """
    staged = _staged(checkout, work, dist, python=python, environment=environment)
    built = [staged.wheel, build_deb(staged, work, dist)]
    if not _has_rpmbuild():
        install_packages(["rpm"], environment)
    if _has_rpmbuild():
        built.append(build_rpm(staged, work, dist))
    return built


def deb(checkout: Path, work: Path, dist: Path, *, python: Path, environment: Mapping[str, str]) -> Path:
    """Build the .deb alone; arguments and errors as for `packages`."""
    staged = _staged(checkout, work, dist, python=python, environment=environment)
    return build_deb(staged, work, dist)


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Parts of a package.

    Attributes:
        source: A clone of the last commit, for the description and the scripts.
        wheel: The wheel of rad-slurm.
        tree: The tree made by `stage_tree`.
        version: In the spelling of dpkg and rpm.
        made_s: The commit's time, and that of every file in the package, in seconds since the epoch.
    """

    source: Path
    wheel: Path
    tree: Path
    version: str
    made_s: int


def _staged(
    checkout: Path, work: Path, dist: Path, *, python: Path, environment: Mapping[str, str]
) -> Staged:
    wheel = build_node(checkout, work, dist, python=python, environment=environment)
    source = work / "source"
    git = ["git", "-C", str(source), "log", "-1", "--format=%ct"]
    return Staged(
        source=source,
        wheel=wheel,
        tree=stage_tree(source, wheel, work / "tree", python=python, environment=environment),
        version=package_version(wheel.name.split("-")[1]),
        made_s=int(run(git, timeout_s=_STEP_S, env=environment)),
    )


def _has_rpmbuild() -> bool:
    try:
        return bool(find_program("rpmbuild"))
    except CommandError:
        return False


def stage_tree(
    checkout: Path, wheel: Path, tree: Path, *, python: Path, environment: Mapping[str, str]
) -> Path:
    """Lay out the files that the package installs, and return the folder.

    Args:
        checkout: Source of the requirements, the templates and the manual.
        wheel: The wheel of rad-slurm.
        tree: The folder, created again; it stands for the machine's root.
        python: A Python with pip.
        environment: What pip needs of the caller's environment.

    Raises:
        LabError: A dependency is not pure Python, so one package could not serve every machine.
    """
    shutil.rmtree(tree, ignore_errors=True)
    site = _below(tree, SITE)
    site.mkdir(parents=True)
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
    into = ["--target", str(site), "--upgrade"]
    needs = ["--require-hashes", "-r", str(checkout / REQUIREMENTS)]
    run([*pip, *into, *needs], timeout_s=_STEP_S, env=environment)
    run([*pip, *into, "--no-deps", str(wheel)], timeout_s=_STEP_S, env=environment)
    shutil.rmtree(site / "bin", ignore_errors=True)  # they name the build machine's Python
    if compiled := sorted(path.name for path in site.rglob("*.so")):
        raise LabError(f"not pure Python: {', '.join(compiled)}")
    for version in PYTHONS:
        (site.parents[1] / f"python{version}").symlink_to("python3")
    _write(tree, PREFIX / "pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n")
    for name, target in _programs(wheel).items():
        module, _, function = target.partition(":")
        text = f"#!{PREFIX}/bin/python -I\nimport sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n"
        _write(tree, PREFIX / "bin" / name, text, mode=0o755)
    (_below(tree, PREFIX) / "bin" / "python3").symlink_to("python")  # created by after_install.sh
    links = _below(tree, Path("/usr/bin"))
    links.mkdir(parents=True)
    for name in ON_PATH:
        (links / name).symlink_to(PREFIX / "bin" / name)
    templates = checkout / "gres_conf"
    for path in sorted((templates / "systemd").iterdir()):
        _write(tree, UNITS / path.name, render(path.read_text(), packaged_values()))
    logs = render((templates / "logrotate.conf").read_text(), packaged_values())
    _write(tree, Path("/etc/logrotate.d/rad"), logs)
    seen = {**environment, "PYTHONPATH": f"{site}:{checkout}"}
    run([str(python), "-m", "tools.man", str(_below(tree, Path("/usr")))], timeout_s=_STEP_S, env=seen)
    for page in (path for pattern in MANUAL for path in sorted(checkout.glob(pattern))):
        name = str(page.relative_to(checkout)).removeprefix("docs/")
        _write(tree, Path("/usr/share/doc/rad-slurm", name), page.read_text())
    return tree


def packaged_values() -> dict[str, str]:
    """Return the values of the unit templates in a package: the default paths of `rad install`."""
    paths = Paths()
    return {
        "prefix": str(PREFIX),
        "templates": str(SITE / "slurm_plugin" / "gres_conf"),
        "config": "/etc/rad/rad.toml",
        "slurm_user": "slurm",
        "run": paths.run,
        "state": paths.state,
        "log": paths.log,
        "socket": paths.socket,
    }


def package_version(version: str) -> str:
    """Return a Python version in dpkg's and rpm's ordering: a development version comes before its release.

    >>> package_version("0.3.1.dev4+g123abc.d20260101")
    '0.3.1~dev4+g123abc.d20260101'
    """
    return re.sub(r"\.?(dev|a|b|rc)(?=\d)", r"~\1", version, count=1)


def build_deb(staged: Staged, work: Path, dist: Path) -> Path:
    """Build the .deb."""
    tree = staged.tree
    root = work / "deb"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(tree, root, symlinks=True)
    scripts = _scripts(staged.source)
    size_kib = sum(path.lstat().st_size for path in tree.rglob("*")) // 1024
    control = (staged.source / FOLDER / "control").read_text()
    purge = (staged.source / FOLDER / "after_purge.sh").read_text()
    removed = f"case $1 in\nremove)\n{scripts['after_removal']};;\npurge)\n{purge};;\nesac\n"
    debian, values = Path("/DEBIAN"), {"version": staged.version, "installed_kib": str(size_kib)}
    _write(root, debian / "control", _filled(control, values))
    _write(root, debian / "conffiles", "/etc/logrotate.d/rad\n")
    for name, text in {
        "postinst": f'[ "$1" = configure ] || exit 0\n{scripts["after_install"]}',
        "prerm": f'[ "$1" = remove ] || exit 0\n{scripts["before_removal"]}',
        "postrm": removed,
    }.items():
        _write(root, debian / name, f"#!/bin/sh\nset -e\n{text}", mode=0o755)
    out = dist / f"rad-slurm_{staged.version}_all.deb"
    env = {"SOURCE_DATE_EPOCH": str(staged.made_s), "PATH": "/usr/bin:/bin"}
    run(["dpkg-deb", "--root-owner-group", "--build", str(root), str(out)], timeout_s=_STEP_S, env=env)
    return out


def build_rpm(staged: Staged, work: Path, dist: Path) -> Path:
    """Build the .rpm; arguments as for `build_deb`. Needs rpmbuild, which Debian has too."""
    top = work / "rpm"
    shutil.rmtree(top, ignore_errors=True)
    values = {"version": staged.version, "tree": str(staged.tree), **_scripts(staged.source)}
    spec = _filled((staged.source / FOLDER / "rad-slurm.spec").read_text(), values)
    _write(top, Path("/rad-slurm.spec"), spec)
    defines = {"_topdir": str(top), "use_source_date_epoch_as_buildtime": "1", "_buildhost": "localhost"}
    options = [word for name, value in defines.items() for word in ("--define", f"{name} {value}")]
    env = {"SOURCE_DATE_EPOCH": str(staged.made_s), "PATH": "/usr/bin:/bin", "HOME": str(top)}
    run(["rpmbuild", "-bb", *options, str(top / "rad-slurm.spec")], timeout_s=_STEP_S, env=env)
    (built,) = top.glob("RPMS/noarch/*.rpm")
    return Path(shutil.copy(built, dist / built.name))


def _programs(wheel: Path) -> dict[str, str]:
    """Return the programs of a wheel: name -> module:function."""
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt"))
    parser = ConfigParser()
    parser.read_string(archive.read(name).decode())
    return dict(parser["console_scripts"])


def _scripts(checkout: Path) -> dict[str, str]:
    names = ("after_install", "before_removal", "after_removal")
    return {name: (checkout / FOLDER / f"{name}.sh").read_text() for name in names}


def _filled(text: str, values: Mapping[str, str]) -> str:
    """Fill a description in; unlike in `render`, values may span lines and comments are filled too."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], text)


def _write(tree: Path, path: Path, text: str, *, mode: int = 0o644) -> None:
    target = _below(tree, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    target.chmod(mode)


def _below(tree: Path, path: Path) -> Path:
    return tree / path.relative_to("/")
