"""`python tests/beside run | show`: the same job scripts with RAD and without, and what differs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path += [str(CHECKOUT / "tests"), str(CHECKOUT)]

from beside.both import both, kept, release  # noqa: E402
from beside.clusters import VARIANTS  # noqa: E402
from beside.table import reasons, summary  # noqa: E402

from lab.place import home_of  # noqa: E402


def main() -> int:
    """Run one command and return its exit status: 1 if anything that ran without RAD fails with it."""
    parser = argparse.ArgumentParser(prog="python tests/beside", description=__doc__)
    parser.add_argument("command", choices=("run", "show"), help="show: what was found before")
    parser.add_argument("--variant", choices=sorted(VARIANTS), default="rad", help="the kind of site")
    parser.add_argument("--long", action="store_true", help="every cell")
    parser.add_argument("--only", default="", help="heads whose name holds this")
    options = parser.parse_args()
    home, _ = home_of(CHECKOUT)
    version, _ = release()
    variant = VARIANTS[options.variant]
    if options.command == "run":
        both(variant, home, long=options.long, only=options.only)
    folder = home / "beside"
    rows = [row for path in sorted(folder.glob("*.rows.jsonl")) for row in kept(path)]
    if options.command != "show":
        rows = [row for row in rows if row["slurm"] == version and row["variant"] == variant.name]
    print(summary(rows))
    for result in ("fails", "only with", "differs"):
        print(f"\n{result}:\n{reasons(rows, result)}")
    return int(any(row["result"] == "fails" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
