"""Read the list of runs to make, and reject those that cannot be true to their trace."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from replay.options import name_of, run_parser
from replay.plan import plan, unmeasured
from replay.workloads import planned_name

Run = argparse.Namespace


class Unready(Exception):
    """Something is missing that a run would find out too late; the text says what."""


def read_runs(path: Path, common: Sequence[str]) -> dict[str, Run]:
    """Return the runs that a file names, by name, the most wanted first.

    Args:
        path: The file; `#` begins a comment.
        common: Options that all runs have.

    Raises:
        Unready: Two runs are one and the same.
    """
    found: dict[str, Run] = {}
    for line in path.read_text().splitlines():
        if words := shlex.split(line, comments=True):
            run = run_parser().parse_args(["OUT", *common, *words])
            if name_of(run) in found:
                raise Unready(f"{path}: {name_of(run)} stands there twice")
            found[name_of(run)] = run
    return found


def refuse_unready(runs: Mapping[str, Run], out: Path) -> None:
    """Refuse a campaign whose runs would be cut off, or train something else than their trace says.

    Args:
        runs: The runs.
        out: Folder of results, which has the workloads' texts.

    Raises:
        Unready: A workload's steps were not measured on so many GPUs, its text is not there, or another model trains.
    """
    made = out / "texts" / "workloads.json"
    known: dict[str, Any] = json.loads(made.read_text()) if made.exists() else {}
    faults: dict[str, set[str]] = {}
    for run in runs.values():
        if run.stand_in:
            continue
        jobs = plan(run.trace, compress=run.compress, gpus=run.gpus, first=run.first)
        faults.setdefault("steps were never measured", set()).update(unmeasured(jobs))
        for name in {job.workload for job in jobs}:
            if name not in known:
                faults.setdefault(f"not described in {made}", set()).add(name)
            elif known[name]["trains"] != planned_name(name):
                faults.setdefault("another model stands in, for its library was missing", set()).add(name)
    reported = [f"{fault}: {', '.join(sorted(names))}" for fault, names in faults.items() if names]
    if reported:
        raise Unready("; ".join(reported))


def argv_of(run: Run) -> list[str]:
    """Return a run's options as a command line."""
    found = ["--trace", str(run.trace), "--policy", run.policy, "--estimates", run.estimates]
    found += ["--compress", f"{run.compress:g}", "--gpus", str(run.gpus)]
    found += ["--gpu-memory-mib", str(run.gpu_memory_mib), "--repetition", str(run.repetition)]
    found += ["--pass-hours", f"{run.pass_hours:g}", "--user", run.user, "--root", str(run.root)]
    found += ["--venv", str(run.venv), "--python", run.python]
    found += ["--exchange", run.exchange]
    found += ["--first", str(run.first)] if run.first else []
    found += ["--users", str(run.users)] if run.users else []
    found += ["--seed", str(run.seed)]
    found += ["--faulty", str(run.faulty)] if run.faulty else []
    for key, value in run.set:
        found += ["--set", f"{key}={value}"]
    return [*found, *(["--stand-in"] * run.stand_in), *(["--on-cpu"] * run.on_cpu)]
