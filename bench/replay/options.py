"""Command-line options of a run, and its name."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path

from replay.policies import ESTIMATES, POLICIES
from replay.users import USERS, dealt_of
from slurm_plugin.core.config import toml

COPIES = "copies"
EXCHANGES = (COPIES, "buckets", "nccl")
"""How trainings of several GPUs agree on a gradient (exchange.py); by COPIES each is handed over by itself."""
GPUS = 2
"""Names of runs on so many GPUs do not say it."""


def name_of(options: argparse.Namespace) -> str:
    """Return what a run is called: all that distinguishes it from other runs."""
    policy, users = POLICIES[options.policy], dealt_of(options)
    parts = [options.trace.stem, options.policy]
    parts += [options.estimates] if policy.with_rad else []
    parts += [f"g{options.gpus}"] if options.gpus != GPUS else []
    parts += [f"c{options.compress:g}", *([f"first{options.first}"] if options.first else [])]
    parts += [f"{key}={value}".replace('"', "") for key, value in options.set]
    parts += [f"pass{options.pass_hours:g}h"] if options.pass_hours else []
    parts += [f"users{users.users}"] if users.users > 1 else []
    parts += [f"seed{users.seed}"] if users.seed else []
    parts += [f"faulty{options.faulty}"] if options.faulty else []
    parts += [options.exchange] if options.exchange != COPIES else []
    parts += ["stand-in"] if options.stand_in else ["on-cpu"] if options.on_cpu else []
    return "-".join([*parts, f"r{options.repetition}"])


def min_age_reserve_s(options: argparse.Namespace) -> int:
    """Return Slurm's bf_min_age_reserve in a run: hours of the trace pass as fast as its jobs do."""
    return round(3600.0 * options.pass_hours / options.compress)


def _setting(text: str) -> tuple[str, str]:
    """Return a key and its value as in rad.toml; a plain word may come without quotes.

    >>> _setting("mps_server=gpu"), _setting("share_multi_gpu=true")
    (('mps_server', '"gpu"'), ('share_multi_gpu', 'true'))
    """
    key, _, value = text.partition("=")
    if re.fullmatch(r"[a-z][a-z_]*", value) and value not in ("true", "false", "inf", "nan"):
        value = json.dumps(value)
    try:
        toml.loads(f"{key} = {value}")
    except toml.TOMLDecodeError as exc:
        raise argparse.ArgumentTypeError(f"{text}: {exc}") from exc
    return key, value


def _count(text: str) -> int:
    if (count := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1")
    return count


def _absolute(text: str) -> Path:
    """Return a path that is the same for jobs, which run in a folder of their own."""
    return Path(text).resolve()


def run_parser() -> argparse.ArgumentParser:
    """Return what reads the command line of one run."""
    parser = argparse.ArgumentParser(prog="replay.run")
    parser.add_argument("out", type=_absolute, help="folder of results")
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--policy", choices=POLICIES, default="magm")
    parser.add_argument("--estimates", choices=ESTIMATES, default="rad")
    parser.add_argument("--compress", type=float, default=120.0)
    parser.add_argument("--first", type=int, help="only the first so many jobs of the trace")
    parser.add_argument(
        "--gpus",
        type=int,
        default=GPUS,
        help="of this machine; jobs that want more are left out of the trace",
    )
    parser.add_argument(
        "--gpu-memory-mib",
        type=int,
        default=143_000,
        help="of each GPU; only a run's expected length knows it",
    )
    parser.add_argument("--repetition", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=540.0, help="cut the run off after so long")
    parser.add_argument("--set", type=_setting, action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--pass-hours",
        type=float,
        default=0.0,
        help="bf_min_age_reserve in hours of the trace: jobs that have waited for less may be passed",
    )
    parser.add_argument(
        "--exchange", choices=EXCHANGES, default=COPIES, help="how GPUs of one job agree on a gradient"
    )
    parser.add_argument(
        "--users",
        type=_count,
        help=f"deal the jobs out to so many users (default: the users that the trace names, else {USERS})",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the deal; another one is another deal")
    parser.add_argument(
        "--faulty",
        type=_count,
        metavar="N",
        help="every Nth job of the first user faults: it writes to an impossible address",
    )
    parser.add_argument("--stand-in", action="store_true", help="simulated GPUs and trainings that sleep")
    parser.add_argument("--on-cpu", action="store_true", help="simulated GPUs and real trainings on the CPU")
    parser.add_argument("--user", default="nobody", help="the account of the only user")
    parser.add_argument("--root", type=_absolute, default=Path("/var/tmp/replay"))
    parser.add_argument("--venv", type=Path, default=Path(sys.prefix), help="where our package is installed")
    parser.add_argument(
        "--python", default=os.environ.get("RAD_TORCH_PYTHON", "python3"), help="a Python that has torch"
    )
    return parser
