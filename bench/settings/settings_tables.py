"""Print what PyTorch settings change: python bench/settings/settings_tables.py docs/results/settings.jsonl.xz.

Rows are those of measure_programs.py for settings.txt, packed by keep_rows.py. Of each network: the process' peak
without the flag, what the process used with it once the trials were over, and the trials' own peak. Of other settings:
how far the process' peak moved.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "programs"))
from keep_rows import read, works
from program_tables import needed_bytes

from gpumemnet.units import MIB

FLAG = " --benchmark"
_OF_A_PAIR = {"settings/train.py", "--precision", "amp", "--channels-last"}
_SETTING = re.compile(
    r"env (?P<variable>(?!CUBLAS)\S+) | --(?P<option>(?:no-)?tf32|deterministic|fraction|empty-cache|smaller)\b"
)
_VALUES = re.compile(r"env \S+ | --(?:no-)?tf32| --deterministic| --(?:fraction|empty-cache|smaller) \S+")
LINE = "| {:22} | {:>5} | {:>7} | {:>7} | {:>6} | {:>7} | {:>7} |"


class Pair(NamedTuple):
    """A network without the flag and with it.

    Attributes:
        network: Its name.
        batch_size: Its batch.
        mixed: Whether it trains in AMP, channels last.
        plain_bytes: The process' peak without the flag.
        tried_bytes: What it used with the flag after the trials.
        trials_bytes: Its peak with the flag.
    """

    network: str
    batch_size: int
    mixed: bool
    plain_bytes: int
    tried_bytes: int
    trials_bytes: int

    @property
    def change(self) -> float:
        """What the flag changed, as a share of the peak without it."""
        return self.tried_bytes / self.plain_bytes - 1

    @property
    def trials(self) -> float:
        """The same for the trials' peak."""
        return self.trials_bytes / self.plain_bytes - 1


def pairs(rows: Iterable[dict[str, Any]]) -> Iterator[Pair]:
    """Yield the networks that were measured in both ways."""
    measured = {row["script"]: row for row in rows if row["kind"] == "measured" and works(row)}
    for line, plain in sorted(measured.items()):
        tried = measured.get(line + FLAG)
        words = line.split()
        if FLAG in line or tried is None or set(words) - _OF_A_PAIR - set(words[1:4]):
            continue
        yield Pair(
            network=words[1],
            batch_size=int(words[3]),
            mixed="amp" in words,
            plain_bytes=plain["process_peak_bytes"],
            tried_bytes=needed_bytes(tried, benchmark=True),
            trials_bytes=tried["process_peak_bytes"],
        )


class Change(NamedTuple):
    """What settings other than the flag change in one network.

    Attributes:
        network: Its name.
        settings: Their names, joined by "and".
        share: What they changed, as a share of the peak without them.
    """

    network: str
    settings: str
    share: float


def changes(rows: Iterable[dict[str, Any]]) -> Iterator[Change]:
    """Yield what other settings change, of each network that was measured with them and without."""
    measured = {row["script"]: row for row in rows if row["kind"] == "measured" and works(row)}
    for line, row in sorted(measured.items()):
        found = [one["variable"] or one["option"] for one in _SETTING.finditer(line)]
        plain = measured.get(_VALUES.sub("", line))
        if not found or FLAG in line or plain is None:
            continue
        share = row["process_peak_bytes"] / plain["process_peak_bytes"] - 1
        yield Change(line.split("settings/train.py ")[1].split()[0], " and ".join(found), share)


def by_setting(found: Iterable[Change]) -> Iterator[str]:
    """Yield the lines of a table: what each setting changes, and in which network most."""
    yield "| setting | networks | least | median | most | of |"
    yield "|---|---|---|---|---|---|"
    members: dict[str, list[Change]] = {}
    for one in found:
        members.setdefault(one.settings, []).append(one)
    for name, ones in sorted(members.items(), key=lambda item: -max(one.share for one in item[1])):
        shares = [one.share for one in ones]
        most = max(ones, key=lambda one: one.share)
        cells = " | ".join(f"{value:+.1%}" for value in (min(shares), statistics.median(shares), most.share))
        yield f"| {name} | {len(ones)} | {cells} | {most.network} |"


def table(found: Iterable[Pair]) -> Iterator[str]:
    """Yield the lines of a table, in MiB."""
    yield LINE.format("network", "batch", "without", "with", "change", "trials", "change")
    yield "|---|---|---|---|---|---|---|"
    for each in found:
        yield LINE.format(
            each.network,
            each.batch_size,
            round(each.plain_bytes / MIB),
            round(each.tried_bytes / MIB),
            f"{each.change:+.1%}",
            round(each.trials_bytes / MIB),
            f"{each.trials:+.0%}",
        )


def spread(name: str, changes: Sequence[float]) -> str:
    """Return a line of a table: median, P5, P95 (nearest rank) and the largest.

    Args:
        name: What they are of.
        changes: As shares.
    """
    ranked = sorted(changes)
    p5, p95 = (ranked[math.ceil(share * len(ranked)) - 1] for share in (0.05, 0.95))
    shown = " | ".join(f"{value:+.1%}" for value in (statistics.median(ranked), p5, p95, ranked[-1]))
    return f"| {name} | {len(ranked)} | {shown} |"


def kinds(found: Iterable[Pair]) -> dict[str, list[Pair]]:
    """Return the networks by precision and memory format."""
    found = list(found)
    names = (("fp32", False), ("AMP, channels last", True))
    return {name: [each for each in found if each.mixed == mixed] for name, mixed in names}


def summary(found: Iterable[Pair]) -> Iterator[str]:
    """Yield the lines of a table of what the flag changes."""
    yield "| change by the flag | networks | median | P5 | P95 | largest |"
    yield "|---|---|---|---|---|---|"
    for name, members in kinds(found).items():
        yield spread(f"{name}, after the trials", [each.change for each in members])
        yield spread(f"{name}, with the trials", [each.trials for each in members])


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=Path)
    options = parser.parse_args()
    rows = read(options.rows)
    found = list(pairs(rows))
    for name, members in kinds(found).items():
        print(f"{name}:", "", *table(members), "", sep="\n")
    print(*summary(found), "", *by_setting(changes(rows)), sep="\n")


if __name__ == "__main__":
    main()
