"""`python tests/comparison run | show | grid`: the same job scripts with RAD and without, and what differs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path += [str(CHECKOUT / "tests"), str(CHECKOUT)]

from comparison.both import both, kept, results_of  # noqa: E402
from comparison.catalogue import heads  # noqa: E402
from comparison.clusters import VARIANTS  # noqa: E402
from comparison.lanes import resume  # noqa: E402
from comparison.table import grid, reasons, summary  # noqa: E402

from lab.place import home_of  # noqa: E402


def main() -> int:
    """Run one command and return its exit status: 1 if anything that ran without RAD fails with it."""
    parser = argparse.ArgumentParser(prog="python tests/comparison", description=__doc__)
    parser.add_argument(
        "command", choices=("run", "show", "grid"), help="what was found before: all, or a size's grid"
    )
    parser.add_argument("--variant", choices=sorted(VARIANTS), default="rad", help="the kind of site")
    sizes = parser.add_mutually_exclusive_group()
    for name, what in (
        ("middle", "each kind of job with each form that requests a GPU"),
        ("long", "every cell"),
    ):
        sizes.add_argument(
            f"--{name}", dest="size", action="store_const", const=name, default="short", help=what
        )
    parser.add_argument("--only", default="", help="heads whose name holds this")
    parser.add_argument("--resume", action="store_true", help="only heads that have no result yet")
    parser.add_argument("--lanes", type=int, default=1, help="pairs of clusters at once, with --resume")
    parser.add_argument("--minutes", type=float, default=600, help="none begins later, with --resume")
    options = parser.parse_args()
    home, _ = home_of(CHECKOUT)
    variant = VARIANTS[options.variant]
    errors: list[str] = []
    if options.command == "run" and options.resume:
        choice = {"size": options.size, "only": options.only, "lanes": options.lanes}
        errors = resume(variant, home, **choice, limit_s=60 * options.minutes)
    elif options.command == "run":
        both(
            variant,
            home,
            size=options.size,
            names=frozenset(h.name for h in heads() if options.only in h.name),
        )
    found = {"show": "*/", "grid": f"*-{variant.name}-{options.size}/"}
    folders = (
        sorted((home / "comparison").glob(found[options.command]))
        if options.command in found
        else [results_of(variant, home, options.size)]
    )
    rows = [row for folder in folders for path in sorted(folder.glob("*.jsonl")) for row in kept(path)]
    if options.command == "grid":
        print(grid(rows))
        return 0
    print(summary(rows))
    for result in ("fails", "only with", "differs"):
        print(f"\n{result}:\n{reasons(rows, result)}")
    print(*errors, sep="\n")
    return int(bool(errors) or any(row["result"] == "fails" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
