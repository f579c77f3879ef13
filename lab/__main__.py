"""`python3 -m lab up | down | status | exec | logs | setup`: a private Slurm of the checkout."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

from lab.cluster import Cluster
from lab.daemons import LabError
from lab.demo import NODE_NAME, Demo
from lab.install import TRAIN, install_package, install_slurm, why_no_slurm
from lab.place import ClusterSpec, NodeSpec, Place, home_of
from lab.real_gpus import real_node
from slurm_plugin.core.errors import CommandError, DeviceError, RadError
from slurm_plugin.core.process.run import find_program, run
from slurm_plugin.monitor.gpus.nvml import NvmlTelemetry
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.monitor.gpus.telemetry import Telemetry
from slurm_plugin.mps.servers import CONTROL
from tools.lint import checks
from tools.messages import page
from tools.packages import packages
from tools.record import record
from tools.release import bill_of_materials, build, pythons, try_install
from tools.site import build_site

Command = Callable[[Cluster, argparse.Namespace], int]
CHECKOUT = Path(__file__).resolve().parent.parent
LOG_LINES = 40
TRAIN_TESTS = (
    *("tests/unit/gpumemnet_trace", "tests/unit/gpumemnet_train", "tests/unit/dataset"),
    *(f"tests/unit/bench/test_bench_{name}.py" for name in ("names", "starts")),  # programs that need torch
    "tests/unit/bench/test_bench_replay.py",  # the training code exists only there
    "tests/unit/gpumemnet/cli/test_cli.py",  # the weights of every estimator are there
)
NEEDS_TORCH = ",".join(
    f"*/gpumemnet/{name}"
    for name in (
        "tracing/trace/*",
        "tracing/saved/calls.py",
        "tracing/saved/make.py",
        "tracing/saved/table.py",
        "tracing/script/*",
        "learning/*",
    )
)
AT_ONCE = ("-n", "auto", "--dist", "worksteal")
QUICK_CLUSTER = tuple(
    f"tests/cluster/{name}.py"
    for name in (
        "submission/test_rewrite",
        "submission/test_steps",
        "placement/test_placement",
        "recovery/test_recovery",
        "commands/test_rad_command",
    )
)
"""Tests of a job's path, from its submission to its rerun, on this machine's Slurm."""
FLOOR_PERCENT = 85
"""Required coverage of lines and branches of all else: a little below what the tests reach."""
OUTPUT_SHOWN = 4000
"""Characters shown of a failed command's output."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    options = _parser().parse_args(argv)
    home, line = home_of(CHECKOUT)
    if line is not None:
        print(line, file=sys.stderr)
    place = Place(root=home / options.name, venv=home / "venv")
    cluster = Cluster(place)
    command: Command = options.command
    # So that started daemons are stopped on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return command(cluster, options)
    except CommandError as exc:
        print(f"{exc.output[-OUTPUT_SHOWN:]}\nlab: {exc}", file=sys.stderr)
        return 1
    except RadError as exc:
        print(f"lab: {exc}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m lab", description="A private Slurm with simulated GPUs."
    )
    parser.add_argument("--name", default="lab", help="which cluster; several can run side by side")
    commands = parser.add_subparsers(required=True)

    def add(name: str, command: Command, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text)
        added.set_defaults(command=command)
        return added

    add("setup", _setup, "install Slurm, where it is missing, and the package")
    add("up", _up, "start").add_argument(
        "--node",
        action="append",
        metavar="NAME:MIB,MIB,...",
        help="a node and the memory of each of its GPUs, for example n1:40960,40960; may be repeated",
    )
    add("down", _down, "stop")
    add("status", _status, "what runs")
    add("logs", _logs, "the end of every log")
    add("exec", _exec, "run a command on the cluster: exec squeue --all").add_argument(
        "argv", nargs=argparse.REMAINDER, help="the command and its options; a shell without one"
    )
    add("demo", _demo, "set up, then run the demo")
    tests = (
        add("unit", _unit, "the quick unit tests: no Slurm, no root, no torch"),
        add("test", _test, "unit, Lua and flow tests, and a few on a real Slurm: ten minutes"),
        add("test-all", _test_all, "every test tier that this machine can run"),
        add("test-train", _test_train, "set up with torch, then run the tests that need it"),
    )
    for each in tests:
        each.add_argument("pytest", nargs="*", help="further arguments for pytest, after --")
    for each in tests[2:]:
        each.add_argument("--coverage", action="store_true", help="measure it, for `make coverage`")
    add("coverage", _coverage, "add up what was measured, and compare it with the floor")
    add("lint", _lint, "set up, then check style, formatting and types")
    add("release", _release, "build all distributions, try them on every Python here, list what they contain")
    add("packages", _packages, "a .deb and, where rpmbuild can be had, an .rpm of the last commit")
    add("site", _site, "the manual and the reference as a site, built strictly")
    add("messages", _messages, "print every message of the code, as the site shows them")
    add("record", _record, "record a user's first job on a private Slurm, for the site")
    add("clean", _clean, "stop what runs and remove all that was made")
    return parser


def _setup(cluster: Cluster, options: argparse.Namespace) -> int:
    install_slurm(os.environ)
    install_package(CHECKOUT, cluster.place.venv, environment=os.environ)
    if (reason := why_no_slurm()) is not None:
        print(reason, file=sys.stderr)
    return 0


def _up(cluster: Cluster, options: argparse.Namespace) -> int:
    if (reason := why_no_slurm()) is not None:
        raise LabError(reason)
    if "slurmctld" in cluster.daemons.running() and not options.node:
        print(
            f"{options.name} is up already; to restart it, first: python3 -m lab --name {options.name} down"
        )
    else:
        cluster.up(ClusterSpec(nodes=tuple(map(_node, options.node))) if options.node else ClusterSpec())
    print(cluster.status())
    exports = shlex.join(["export", *(f"{name}={value}" for name, value in _reader(cluster).items())])
    print(f"use it with: python3 -m lab --name {options.name} exec bash\nor: {exports}")
    return 0


def _node(text: str) -> NodeSpec:
    name, _, sizes = text.partition(":")
    try:
        return NodeSpec(name=name, gpu_mib=tuple(map(int, sizes.split(","))))
    except ValueError:
        raise LabError(f"--node {text}: write it like n1:40960,40960") from None


def _down(cluster: Cluster, options: argparse.Namespace) -> int:
    cluster.down()
    return 0


def _status(cluster: Cluster, options: argparse.Namespace) -> int:
    print(cluster.status())
    return 0


def _logs(cluster: Cluster, options: argparse.Namespace) -> int:
    print(cluster.logs(LOG_LINES))
    return 0


def _exec(cluster: Cluster, options: argparse.Namespace) -> int:
    argv = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    argv = argv or ["bash"]
    if not cluster.place.etc.is_dir():
        raise LabError(f"{options.name} is not up; run: python3 -m lab --name {options.name} up")
    try:
        os.execvpe(argv[0], argv, {**os.environ, **_reader(cluster)})
    except OSError as exc:
        raise LabError(f"{argv[0]}: {exc.strerror}") from exc


def _reader(cluster: Cluster) -> dict[str, str]:
    """Return the environment of a user on the cluster's first node, in which RAD's programs find its rad.toml."""
    tomls = sorted(cluster.place.etc.glob("rad.*.toml"))
    return cluster.env({"RAD_CONFIG": str(tomls[0])} if tomls else None)


def _demo(cluster: Cluster, options: argparse.Namespace) -> int:
    install_slurm(os.environ)
    if (reason := why_no_slurm()) is not None:
        raise LabError(f"the demo cannot run: {reason}")
    python = cluster.place.venv / "bin" / "python"
    if Path(sys.prefix) != cluster.place.venv:
        install_package(CHECKOUT, cluster.place.venv, environment=os.environ)
        os.execv(python, [str(python), "-m", "lab", *sys.argv[1:]])  # it has NVML's binding
    say = partial(print, flush=True)
    gpus: Telemetry = NvmlTelemetry()
    try:
        node = real_node(NODE_NAME, gpus.read())
        find_program(CONTROL)
        cluster = Cluster(cluster.place.short_for_mps(CHECKOUT))
    except (LabError, DeviceError, CommandError) as exc:
        say(f"the GPUs are simulated: {exc}")
        node, gpus = NodeSpec(name=NODE_NAME), SimulatedGpus(cluster.place.gpus(NODE_NAME))
    return 0 if Demo(cluster, node, gpus, checkout=CHECKOUT, say=say).run() else 1


def _unit(cluster: Cluster, options: argparse.Namespace) -> int:
    install_package(CHECKOUT, cluster.place.venv, environment=os.environ)
    with _scratch() as scratch:
        quick = [*AT_ONCE, "-m", "not slow", "--hypothesis-profile=quick", *scratch]
        return _show([*_pytest(cluster), *quick, "tests/unit", *options.pytest])


@contextmanager
def _scratch() -> Iterator[list[str]]:
    """Yield pytest's option for temporary folders in memory; none where there is no such folder for programs too."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or os.statvfs(memory).f_flag & os.ST_NOEXEC:
        yield []
        return
    with TemporaryDirectory(prefix="rad-", dir=memory, ignore_cleanup_errors=True) as folder:
        yield [f"--basetemp={folder}/t"]


def _test(cluster: Cluster, options: argparse.Namespace) -> int:
    _setup(cluster, options)
    pytest = _pytest(cluster)
    computing = [*AT_ONCE, "-m", "not gpu", "tests/unit", "tests/lua", "tests/flow"]
    if (reason := why_no_slurm()) is not None:
        print(f"not run: tests/cluster, {reason}")
        return _show([*pytest, *computing, *options.pytest])
    waiting = [*pytest, "-m", "cluster and not slow", *QUICK_CLUSTER, *options.pytest]
    if not (apart := _apart()):
        return _show([*pytest, *computing, *options.pytest]) | _show(waiting)
    with NamedTemporaryFile("w+") as output:
        kept = ["sh", "-c", 'exec "$@" >"$0" 2>&1', output.name, *apart, *waiting]
        on_slurm = os.spawnv(os.P_NOWAIT, "/bin/sh", kept)
        try:
            failed = _show([*pytest, *computing, *options.pytest])
        except SystemExit:
            os.kill(on_slurm, signal.SIGTERM)
            raise
        print("$", shlex.join(waiting), "(meanwhile)", flush=True)
        failed |= os.waitstatus_to_exitcode(os.waitpid(on_slurm, 0)[1])
        print(output.read(), end="")
    return failed


def _apart() -> list[str]:
    """Return a prefix for a command with processes of its own, since hooks look at all of a node; empty if refused."""
    for propagation in ("slave", "unchanged"):  # the second in a chroot, whose root is no mount
        unshare = ["unshare", "--mount", "--propagation", propagation, "--pid", "--fork", "--kill-child"]
        with suppress(CommandError):
            run([*unshare, "true"], timeout_s=10)
            return [*unshare, "--mount-proc"]
    return []


def _pytest(cluster: Cluster) -> list[str]:
    return [str(cluster.place.venv / "bin" / "python"), "-Im", "pytest", "-q"]


def _test_all(cluster: Cluster, options: argparse.Namespace) -> int:
    _setup(cluster, options)
    pytest = [str(cluster.place.venv / "bin" / "python"), "-Im", "pytest", "--ignore=tests/gpu"]
    measured = _measured(cluster, "test") if options.coverage else []
    without = "not gpu and not cluster"
    if any(each.startswith("tests") for each in options.pytest):  # the caller names a tier or files
        tiers = "not gpu" if why_no_slurm() is None else without
        return _show([*pytest, "-m", tiers, *measured, *options.pytest])
    failed = _show([*pytest, *AT_ONCE, "-m", without, *measured, *options.pytest])
    if (reason := why_no_slurm()) is not None:
        print(f"not run: tests/cluster, {reason}")
        return failed
    return _show([*pytest, "-m", "cluster and not gpu", *options.pytest]) or failed


def _test_train(cluster: Cluster, options: argparse.Namespace) -> int:
    folder = _train_environment(cluster)
    measured = _measured(cluster, "train") if options.coverage else []
    return _show([str(folder / "python"), "-Im", "pytest", *TRAIN_TESTS, *measured, *options.pytest])


def _measured(cluster: Cluster, tier: str) -> list[str]:
    """Return pytest's options that measure coverage, and print where its data goes."""
    os.environ["COVERAGE_FILE"] = str(_coverage_folder(cluster) / tier)
    return ["--cov", "--cov-report="]


def _coverage_folder(cluster: Cluster) -> Path:
    folder = cluster.place.root.parent / "coverage"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _coverage(cluster: Cluster, options: argparse.Namespace) -> int:
    folder = _coverage_folder(cluster)
    found = [str(path) for path in (folder / "test", folder / "train") if path.exists()]
    if not found:
        raise LabError("nothing was measured; run: make test COVERAGE=1")
    os.environ["COVERAGE_FILE"] = str(folder / "all")
    coverage = [str(cluster.place.venv / "bin" / "coverage")]
    if status := _show([*coverage, "combine", "-q", "--keep", *found]):
        return status
    _show([*coverage, "report", "--skip-covered", "--sort=cover"])
    floor = [f"--omit={NEEDS_TORCH}", f"--fail-under={FLOOR_PERCENT}"]
    return _show([*coverage, "report", "--format=total", *floor])


def _lint(cluster: Cluster, options: argparse.Namespace) -> int:
    folder = _train_environment(cluster)
    statuses = [_show(argv) for argv in checks(folder, CHECKOUT, os.environ)]
    return int(any(statuses))


def _release(cluster: Cluster, options: argparse.Namespace) -> int:
    home, python = cluster.place.root.parent, cluster.place.venv / "bin" / "python"
    install_package(CHECKOUT, cluster.place.venv, environment=os.environ)
    files = build(CHECKOUT, home / "release", CHECKOUT / "dist", python=python, environment=os.environ)
    for file in files:
        print(f"{file.stat().st_size / 1e6:6.2f} MB  {file.relative_to(CHECKOUT)}", flush=True)
    if ".dev" in files[0].name:
        print("this commit has no tag: a development version, not one to publish", flush=True)
    tried = None
    for version, path in pythons(os.environ):
        if path is None:
            print(f"Python {version}: not here, so not tried", flush=True)
            continue
        tried = home / f"release-{version}"
        said = try_install(files[:2], tried, CHECKOUT, python=path, environment=os.environ)
        print(f"Python {version}: wheel and sdist installed; {said}", flush=True)
    if tried is not None:
        tools = home / "release-tools"
        run([sys.executable, "-m", "venv", str(tools)], timeout_s=120)
        out = CHECKOUT / "dist" / "sbom.cdx.json"
        bill_of_materials(tried, tools / "bin" / "python", out, environment=os.environ)
        print(f"what it brings: {out.relative_to(CHECKOUT)}")
    return 0


def _packages(cluster: Cluster, options: argparse.Namespace) -> int:
    home, python = cluster.place.root.parent, cluster.place.venv / "bin" / "python"
    install_package(CHECKOUT, cluster.place.venv, environment=os.environ)
    for file in packages(
        CHECKOUT, home / "packages", CHECKOUT / "dist", python=python, environment=os.environ
    ):
        print(f"{file.stat().st_size / 1e6:6.2f} MB  {file.relative_to(CHECKOUT)}", flush=True)
    return 0


def _messages(cluster: Cluster, options: argparse.Namespace) -> int:
    print(page())
    return 0


def _site(cluster: Cluster, options: argparse.Namespace) -> int:
    page = build_site(CHECKOUT, CHECKOUT / ".rad" / "site", environment=os.environ)
    print(f"built: {page.relative_to(CHECKOUT)}")
    return 0


def _record(cluster: Cluster, options: argparse.Namespace) -> int:
    _setup(cluster, options)
    print(f"recorded: {record(cluster, CHECKOUT).relative_to(CHECKOUT)}")
    return 0


def _train_environment(cluster: Cluster) -> Path:
    """Install the package with the training extras, for types and tests, and return the folder of its programs."""
    venv = cluster.place.root.parent / "venv-train"
    install_package(CHECKOUT, venv, kind=TRAIN, environment=os.environ)
    return venv / "bin"


def _show(argv: Sequence[str]) -> int:
    """Run a program in this terminal and return its exit status."""
    print("$", shlex.join(argv), flush=True)
    return os.spawnve(os.P_WAIT, argv[0], list(argv), os.environ)


def _clean(cluster: Cluster, options: argparse.Namespace) -> int:
    home, short = cluster.place.root.parent, cluster.place.short_for_mps(CHECKOUT).root
    for saved in (*home.glob("*/cluster.json"), *short.glob("cluster.json")):
        Cluster(Place(root=saved.parent, venv=cluster.place.venv)).down()
    for folder in (home, short):
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
