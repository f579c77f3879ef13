"""The runs of a replay, read from the files that bench/replay wrote."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from replay.report.check import check, finite
from slurm_plugin.core.errors import ConfigError

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRun:
    """One run of a trace.

    Attributes:
        trace: The trace's name.
        policy: How jobs got their GPUs; "whole" is the baseline.
        way: Policy, estimates and settings, in a few words; hours of bf_min_age_reserve are in the trace's time.
        repetition: Number of the run of this variant, from 1.
        compress: How many times faster than the trace.
        first: Number of the trace's jobs in it; None: all.
        users: Number of users that submitted its jobs.
        exchange: How GPUs of one job combined their gradients; "copies": each by itself.
        cut: Whether it was cut off before its last job had ended.
        simulated: Whether GPUs and trainings were simulated.
        figures: Its results.
        jobs: Its jobs.
        times_s: When the GPUs were sampled.
        devices: Samples of each GPU.
        machine: Where it ran.
    """

    trace: str
    policy: str
    way: str
    repetition: int
    compress: float
    first: int | None
    users: int
    exchange: str
    cut: bool
    simulated: bool
    figures: Mapping[str, Any]
    jobs: Sequence[Mapping[str, Any]]
    times_s: Sequence[float]
    devices: Sequence[Mapping[str, Any]]
    machine: Mapping[str, Any]

    @property
    def label(self) -> str:
        """Return what distinguishes it from the other runs of its trace."""
        return self.way if self.repetition == 1 else f"{self.way} run {self.repetition}"

    @property
    def scene(self) -> tuple[str, float, int, str, bool, str]:
        """Return what two runs must have in common to be comparable."""
        return (self.trace, self.compress, self.first or 0, self.exchange, self.simulated, self.gpus)

    @property
    def gpus(self) -> str:
        """Return the GPUs it ran on, as text."""
        return counted([device["name"] for device in self.devices])

    @property
    def title(self) -> str:
        """Return the title of such runs."""
        which = f" (its first {self.first} jobs)" if self.first else ""
        how = "" if self.exchange == "copies" else f", gradients by {self.exchange}"
        return f"{self.trace}{which}, {self.gpus}, {self.compress:g} times faster{how}"

    @property
    def slowdowns(self) -> list[float]:
        """Return how many times longer than alone the steps of each successful job took, smallest first."""
        found = []
        for job in self.jobs:
            last = job["runs"][-1] if job["runs"] else {}
            if last.get("outcome") == "ok":
                found.append((last["end_s"] - last["trains_s"]) / max(job["alone_s"], 1e-9))
        return sorted(found)


def counted(names: Sequence[str]) -> str:
    """Return names with their counts, in order of appearance.

    >>> counted(["NVIDIA H200", "NVIDIA H200"])
    '2 NVIDIA H200'
    """
    return " and ".join(f"{count} {name}" for name, count in Counter(names).items())


def read_runs(paths: Sequence[Path]) -> tuple[TraceRun, ...]:
    """Read runs, in the order of their names within each trace, whole GPUs first.

    Raises:
        ConfigError: A file cannot be read, or is not a run.
    """
    found = _distinct([_read(path) for path in paths], paths)
    return tuple(sorted(found, key=lambda run: (run.scene, run.policy != "whole", run.label)))


def _distinct(runs: Sequence[TraceRun], paths: Sequence[Path]) -> Iterator[TraceRun]:
    """Yield runs; those with equal names are called by their files."""
    alike = Counter((run.scene, run.label) for run in runs)
    for run, path in zip(runs, paths, strict=True):
        yield run if alike[run.scene, run.label] == 1 else replace(run, way=run_name(path))


def run_name(path: Path) -> str:
    """Return the name of a run: that of its file without `.json` or `.json.xz`.

    >>> run_name(Path("runs/mix90-whole-c0.5-r1.json.xz"))
    'mix90-whole-c0.5-r1'
    """
    return path.name.removesuffix(".xz").removesuffix(".json")


def run_record(path: Path) -> Any:
    """Return the content of a run's file, compressed (`.json.xz`) or not.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not JSON, or not compressed as its name says.
    """
    packed = path.read_bytes()
    try:
        text = lzma.decompress(packed) if path.suffix == ".xz" else packed
        return json.loads(text, parse_constant=finite, parse_float=finite, parse_int=_whole)
    except lzma.LZMAError as exc:
        raise ValueError(f"not compressed with xz: {exc}") from exc


def _read(path: Path) -> TraceRun:
    try:
        row = run_record(path)
    except RecursionError:
        raise ConfigError(f"{path}: nested too deep; give files that bench/replay wrote") from None
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror}") from exc
    except ValueError as exc:
        raise ConfigError(f"{path}: no JSON ({exc}); give files that bench/replay wrote") from exc
    try:
        if row["version"] != VERSION:
            raise ConfigError(
                f"{path}: version {row['version']}, {VERSION} is known; use the checkout that wrote it"
            )
        check(row)
        named = [row["policy"], *([row["estimates"]] if row["estimates"] else [])]
        named += [f"{name}={value}".replace('"', "") for name, value in row["settings"].items()]
        if passed_s := row.get("min_age_reserve_s"):
            named.append(f"bf_min_age_reserve={passed_s * row['compress'] / 3600:g}h")
        users = row.get("users") or 1
        if users > 1:
            named += [f"{name}={row[name]}" for name in ("users", "seed") if row[name] is not None]
        if row.get("faulty"):
            named.append(f"faulty={row['faulty']}")
        return TraceRun(
            trace=row["trace"],
            policy=row["policy"],
            way=" ".join(named),
            repetition=row["repetition"],
            compress=row["compress"],
            first=row.get("first"),
            users=users,
            exchange=row.get("exchange", "copies"),
            cut=row["cut"],
            simulated=row["stand_in"],
            figures=row["figures"],
            jobs=row["jobs"],
            times_s=row["samples"]["times_s"],
            devices=row["samples"]["gpus"],
            machine=row["machine"],
        )
    except KeyError as exc:
        raise ConfigError(f"{path}: {exc} is missing; give files that bench/replay wrote") from exc
    except (AttributeError, TypeError, ValueError) as exc:
        raise ConfigError(f"{path}: {exc}; give files that bench/replay wrote") from exc


def _whole(text: str) -> int:
    finite(text)
    return int(text)
