"""Compare replays on one page: python -m replay.report RUN... [--out report.html].

RUNs are files that bench/replay wrote, or recorded ones (docs/results/replay/*.json.xz). Prints their main figures.
Needs PYTHONPATH=bench:. as the other programs here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from replay.report.page import page
from replay.report.runs import read_runs
from replay.report.text import tables
from slurm_plugin.core.errors import ConfigError


def compare(runs: Sequence[Path], *, out: Path) -> list[str]:
    """Write the page; return the main figures and a line for it.

    Args:
        runs: Files that bench/replay wrote.
        out: The page.

    Raises:
        ConfigError: A file is not a run.
    """
    found = read_runs(runs)
    out.write_text(page(found), encoding="utf-8")
    return [*tables(found), f"{out}: {len(found)} runs"]


def main(words: Sequence[str] | None = None) -> int:
    """Compare the replays named on the command line; return the exit status, 2 if a file cannot be used.

    Args:
        words: The command line; None: this process's own.
    """
    parser = argparse.ArgumentParser(
        prog="replay.report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="file that bench/replay wrote")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="the page")
    options = parser.parse_args(words)
    try:
        lines = compare(options.runs, out=options.out)
    except (ConfigError, OSError) as exc:
        print(f"replay.report: {exc}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
