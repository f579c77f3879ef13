"""Release files: wheels and sdists in dist/, tested on every Python found here, and a bill of materials."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lab.daemons import LabError
from slurm_plugin.core.errors import CommandError
from slurm_plugin.core.process.run import find_program, run
from tools.stage import stage_profile, stage_train

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
USERS_PYTHONS = ("3.9", *PYTHONS)
"""Python versions for the distribution for users' environments."""
REQUIREMENTS = Path("requirements") / "node.txt"
SUMMARY = Path("examples") / "models" / "resnet50_torchinfo.txt"
_STEP_S = 600.0

_BUILD = (
    "import os, sys; os.chdir(sys.argv[1]); from setuptools import build_meta as m; "
    "print(getattr(m, 'build_' + sys.argv[3])(sys.argv[2]))"
)


def build(
    checkout: Path, work: Path, dist: Path, *, python: Path, environment: Mapping[str, str]
) -> list[Path]:
    """Build all distributions from the last commit, the wheels from the sdists.

    Args:
        checkout: A clone with its history, whose tags determine the version.
        work: A folder for intermediate files.
        dist: Target folder; emptied first.
        python: A Python with setuptools and setuptools-scm.
        environment: What pip needs of the caller's environment, such as proxies.

    Returns:
        The files: wheel and sdist of rad-slurm, of rad-slurm-train, and of gpumemnet.

    Raises:
        CommandError: git or a build failed.
        LabError: This is not a clone.
    """
    source, env = _cloned(checkout, work, dist, environment)
    files = _built(source, work / "node", dist, python, env)
    version = files[0].name.split("-")[1]
    staged = stage_train(source, work / "train-source", version=version)
    files += _built(staged, work / "train", dist, python, env)
    staged = stage_profile(source, work / "profile-source", version=version)
    return files + _built(staged, work / "profile", dist, python, env)


def build_node(
    checkout: Path, work: Path, dist: Path, *, python: Path, environment: Mapping[str, str]
) -> Path:
    """Build rad-slurm alone, and return the wheel; arguments and errors as for `build`."""
    source, env = _cloned(checkout, work, dist, environment)
    return _built(source, work / "node", dist, python, env)[0]


def _cloned(
    checkout: Path, work: Path, dist: Path, environment: Mapping[str, str]
) -> tuple[Path, dict[str, str]]:
    """Clone the last commit into an emptied folder, empty dist, and return the clone and the environment for builds."""
    if not (checkout / ".git").exists():
        raise LabError(f"{checkout} is no clone: its version comes from tags")
    for folder in (work, dist):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    git = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    env = {**environment, **git}
    source = work / "source"
    run(["git", "clone", "-q", "--no-hardlinks", str(checkout), str(source)], timeout_s=_STEP_S, env=env)
    return source, env


def _built(source: Path, work: Path, dist: Path, python: Path, env: Mapping[str, str]) -> list[Path]:
    """Build an sdist, and a wheel from its content."""

    def one(kind: str, folder: Path) -> Path:
        argv = [str(python), "-c", _BUILD, str(folder), str(dist), kind]
        return dist / run(argv, timeout_s=_STEP_S, env=env).splitlines()[-1]

    sdist = one("sdist", source)
    work.mkdir()
    shutil.unpack_archive(sdist, work)
    (unpacked,) = work.iterdir()
    return [one("wheel", unpacked), sdist]


def pythons(
    environment: Mapping[str, str], versions: Sequence[str] = PYTHONS
) -> Iterator[tuple[str, str | None]]:
    """Yield each supported Python and its path; None if this machine lacks it."""
    folders = ["/usr/bin", "/usr/local/bin", *environment.get("PATH", "").split(":")]
    pyenv = Path(environment.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for version in versions:
        own = sorted(str(path.parent) for path in pyenv.glob(f"{version}.*/bin/python{version}"))
        try:
            path = find_program(f"python{version}", folders=[*own, *folders])
            # A shim of pyenv's is not a Python.
            run([path, "-c", "import ensurepip, venv"], timeout_s=60)
            yield version, path
        except CommandError:
            yield version, None


def try_install(
    files: list[Path], work: Path, checkout: Path, *, python: str, environment: Mapping[str, str]
) -> str:
    """Install the wheel with pinned requirements, then the sdist over it, and run the programs.

    Args:
        files: Wheel and sdist of rad-slurm.
        work: A folder for the virtual environment, created again.
        checkout: Source of the requirements and a summary.
        python: The interpreter.
        environment: What pip needs of the caller's environment.

    Returns:
        Output of `rad --version`.

    Raises:
        CommandError: Something failed.
    """
    shutil.rmtree(work, ignore_errors=True)
    run([python, "-m", "venv", str(work)], timeout_s=_STEP_S, env=environment)
    pip = [str(work / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    requirements = str(checkout / REQUIREMENTS)
    run([*pip, "--require-hashes", "-r", requirements], timeout_s=_STEP_S, env=environment)
    said = ""
    for file in files:
        run([*pip, "--no-deps", "--force-reinstall", str(file)], timeout_s=_STEP_S, env=environment)
        said = run([str(work / "bin" / "rad"), "--version"], timeout_s=60).strip()
        summary = str(checkout / SUMMARY)
        run([str(work / "bin" / "rad-estimate"), summary, "--batch-size", "8", "--json"], timeout_s=60)
        run([str(work / "bin" / "radd"), "--help"], timeout_s=60)
        run([str(work / "bin" / "rad-monitor"), "--help"], timeout_s=60)
        dry = [str(work / "bin" / "rad"), "install", "--dry-run", "--gpu-memory-mib", "40000"]
        run([*dry, "--root", str(work / "root")], timeout_s=60)
    return said


def bill_of_materials(venv: Path, tools: Path, out: Path, *, environment: Mapping[str, str]) -> None:
    """Write an environment's content in CycloneDX format.

    Args:
        venv: The environment made by `try_install`.
        tools: A Python that gets cyclonedx-bom.
        out: The JSON file.
        environment: What pip needs of the caller's environment.

    Raises:
        CommandError: The tool cannot be installed, or failed.
    """
    pip = [str(tools), "-m", "pip", "install", "-q", "--disable-pip-version-check", "cyclonedx-bom>=4"]
    run(pip, timeout_s=_STEP_S, env=environment)
    argv = [str(tools), "-m", "cyclonedx_py", "environment", str(venv / "bin" / "python"), "-o", str(out)]
    run(argv, timeout_s=_STEP_S, env=dict(os.environ))
