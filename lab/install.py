"""Install what `make demo` and `make test` need on a fresh machine: Slurm, a virtual environment, the package."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from lab import accounts
from lab.daemons import LabError
from slurm_plugin.core.errors import CommandError
from slurm_plugin.core.process.run import find_program, run
from tools.stage import TRAIN_FOLDER, fallback_version, fingerprint, stage_node, stage_train

PROGRAMS = (
    "slurmctld",
    "slurmd",
    "sbatch",
    "srun",
    "salloc",
    "scontrol",
    "sinfo",
    "squeue",
    "munged",
    "runuser",
)
DEBIAN_PACKAGES = (
    "slurmctld",
    "slurmd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "munge",
    "lua-socket",
    "lua-posix",
    "lua5.1",
    "lua5.4",
)

RUN = ("monitor,test", ())
"""Extras of the environment that hooks, jobs and most tests run in: no torch and no training code, as on a node."""
TRAIN = ("monitor,test,trace", ("torch==2.13.0",))
"""Extras of the environment for training and tracing models, and the releases to install first: the one that produced
the recorded answers in tests/. It gets the second distribution too.
"""
SYSTEM_PYTHON = Path("/usr/bin/python3")
OLDEST_PYTHON = (3, 11)
"""Oldest Python for `python3 -m lab` itself, and for an environment without a chosen Python."""
CHOSEN_PYTHON = "RAD_PYTHON"
"""Variable that names the Python of new environments: to test the hooks on another version that rad-slurm supports."""
_INSTALL_S = 900.0


def missing_programs() -> list[str]:
    """Return the programs of a private Slurm that this machine lacks."""
    missing = []
    for name in PROGRAMS:
        try:
            find_program(name)
        except CommandError:
            missing.append(name)
    return missing


def why_no_slurm() -> str | None:
    """Return in one line why no private Slurm can be started here now and how to fix it; None if it can."""
    if os.geteuid() != 0:
        return "a private Slurm needs root (munged, slurmctld and jobs run as separate users): run as root"
    if missing := missing_programs():
        return f"missing {', '.join(missing)}: install Slurm (22.05 or later), munge and Lua's sockets"
    return None


def install_slurm(environment: Mapping[str, str]) -> None:
    """Install the missing parts of a private Slurm, as root on Debian and derivatives; elsewhere change nothing.

    Args:
        environment: What apt needs of the caller's environment, such as proxies.

    Raises:
        CommandError: apt failed.
    """
    if os.geteuid() != 0 or not _is_debian():
        return
    packages: tuple[str, ...] = (*DEBIAN_PACKAGES, *accounts.DEBIAN_PACKAGES)
    if not missing_programs() and not _is_installed("slurmctld"):  # a Slurm of another origin stays
        packages = tuple(package for package in DEBIAN_PACKAGES if package.startswith("lua"))
    wanted = [package for package in packages if not _is_installed(package)]
    if wanted:
        _apt_install(wanted, environment)


def install_packages(packages: Sequence[str], environment: Mapping[str, str]) -> None:
    """Install packages of the distribution, as root on Debian and derivatives; elsewhere, or offline, do nothing.

    Args:
        packages: Their names in Debian.
        environment: What apt needs of the caller's environment, such as proxies.
    """
    if packages and os.geteuid() == 0 and _is_debian():
        with suppress(CommandError):
            _apt_install(list(packages), environment)


def _is_debian() -> bool:
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return False
    kinds = [line.partition("=")[2] for line in lines if line.startswith(("ID=", "ID_LIKE="))]
    return any("debian" in kind for kind in kinds)


def _is_installed(package: str) -> bool:
    try:
        return (
            "installed"
            in run(["dpkg-query", "-W", "-f", "${db:Status-Status}", package], timeout_s=10).split()
        )
    except CommandError:
        return False


def _apt_install(packages: list[str], environment: Mapping[str, str]) -> None:
    print(f"installing {' '.join(packages)}", flush=True)
    env = {**environment, "DEBIAN_FRONTEND": "noninteractive"}
    with _no_daemons_started():
        run(["apt-get", "update", "-q"], timeout_s=_INSTALL_S, env=env)
        options = ["-y", "-q", "--no-install-recommends"]
        run(["apt-get", "install", *options, *packages], timeout_s=_INSTALL_S, env=env)


@contextmanager
def _no_daemons_started() -> Iterator[None]:
    """Keep packages from starting daemons (Debian Policy 9.3.3.2, policy-rc.d)."""
    policy = Path("/usr/sbin/policy-rc.d")
    if policy.exists():
        yield
        return
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink(missing_ok=True)


def install_package(
    checkout: Path, venv: Path, *, kind: tuple[str, tuple[str, ...]] = RUN, environment: Mapping[str, str]
) -> None:
    """Install the package from a wheel into a virtual environment, again whenever its sources have changed.

    Args:
        checkout: The sources.
        venv: The environment, created if missing.
        kind: RUN or TRAIN.
        environment: What pip needs of the caller's environment, such as proxies.

    Raises:
        LabError: No Python is new enough, or it has no venv.
        CommandError: pip failed.
    """
    extras, first = kind
    sources, needs = fingerprint(checkout), _needs(checkout, extras)
    stamp = venv / "installed"
    old_sources, old_needs = stamp.read_text().split() if stamp.exists() else ("", "")
    if (old_sources, old_needs) == (sources, needs):
        return
    os.umask(0o022)  # hooks and jobs of other users import from here
    python = venv / "bin" / "python"
    if fresh := not python.exists():
        _make_venv(venv, environment)
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    if old_needs != needs:
        print("installing the package and what it needs", flush=True)
        tools = ["setuptools>=68", "setuptools-scm>=8", "wheel"]
        run([*pip, *tools, *first], timeout_s=_INSTALL_S, env=environment)
    builds = [str(stage_node(checkout, venv.parent / "build"))]
    if kind == TRAIN:
        version = fallback_version(checkout)
        builds.append(str(stage_train(checkout, venv.parent / "build-train", version=version)))
    if old_needs != needs:
        wanted = [f"{builds[0]}[{extras}]", *builds[1:]]
        run([*pip, "--no-build-isolation", *wanted], timeout_s=_INSTALL_S, env=environment)
    if fresh:  # nothing older is there
        stamp.write_text(f"{sources} {needs}\n")
        return
    # The version stays the same while the sources change. The wheel is built first and swapped in quickly, so that a
    # cluster that runs meanwhile lacks its hooks only briefly.
    options = ["--no-build-isolation", "--no-deps", "--force-reinstall", "--no-warn-script-location"]
    run([*pip, *options, *builds], timeout_s=_INSTALL_S, env=environment)
    stamp.write_text(f"{sources} {needs}\n")


def _make_venv(venv: Path, environment: Mapping[str, str]) -> None:
    python = SYSTEM_PYTHON if _version_of(SYSTEM_PYTHON) >= OLDEST_PYTHON else Path(sys.executable)
    if chosen := environment.get(CHOSEN_PYTHON):
        python = Path(chosen)
    elif _version_of(python) < OLDEST_PYTHON:
        raise LabError(f"{python} is older than Python 3.11: install python3.11 or later and run again")
    try:
        run([str(python), "-c", "import ensurepip, venv"], timeout_s=30)
    except CommandError:
        major, minor = _version_of(python)
        if os.geteuid() != 0 or not _is_debian():
            raise LabError(
                f"{python} lacks venv: install the package python{major}.{minor}-venv and run again"
            ) from None
        _apt_install([f"python{major}.{minor}-venv"], environment)
    shutil.rmtree(venv, ignore_errors=True)
    run([str(python), "-m", "venv", str(venv)], timeout_s=_INSTALL_S, env=environment)


def _version_of(python: Path) -> tuple[int, int]:
    try:
        text = run([str(python), "-c", "import sys; print(*sys.version_info[:2])"], timeout_s=30)
    except CommandError:
        return (0, 0)
    major, minor = text.split()
    return int(major), int(minor)


def _needs(checkout: Path, extras: str) -> str:
    """Return a hash of everything that determines which other packages are installed."""
    named = (checkout / "setup.cfg", checkout / TRAIN_FOLDER / "setup.cfg")
    texts = [path.read_bytes() for path in named if path.exists()]  # an older version has fewer distributions
    return hashlib.sha256(b"".join([*texts, extras.encode()])).hexdigest()
