"""`python tests/sites`: every site of the catalogue installs, starts, shares, uninstalls; the table on stdout."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path += [str(CHECKOUT / "tests"), str(CHECKOUT)]

from sites.catalogue import SITES, Site  # noqa: E402

APART = ("--uts", "--net", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc")
LIMIT_S = 240


def tried(site: Site) -> dict[str, str]:
    """Return what happened to one site, in namespaces of its own."""
    program = [sys.executable, str(Path(__file__).with_name("inside.py")), site.name]
    mounts = ["--mount"]
    if subprocess.run(["unshare", *mounts, "true"], capture_output=True, check=False).returncode:
        mounts += ["--propagation", "unchanged"]  # in a chroot, whose root is no mount
    command = ["unshare", *mounts, *APART, *program]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"site": site.name, "verdict": "wrong", "why": f"not done after {LIMIT_S} s"}
    rows = [line for line in done.stdout.splitlines() if line.startswith('{"site"')]
    if not rows:
        return {"site": site.name, "verdict": "wrong", "why": (done.stderr or done.stdout)[-600:]}
    row: dict[str, str] = json.loads(rows[-1])
    return row


def main() -> int:
    """Try the sites and return 1 if one is neither understood nor refused with the true reason."""
    parser = argparse.ArgumentParser(prog="python tests/sites", description=__doc__)
    parser.add_argument("--only", default="", help="sites whose name contains this")
    parser.add_argument("--show", action="store_true", help="print also what install said")
    options = parser.parse_args()
    rows = []
    print("| site | shape | Slurm | verdict | reason, or the job | bytes |\n|---|---|---|---|---|---|")
    for site in SITES:
        if options.only in site.name:
            row = tried(site)
            rows.append(row)
            cells = (row.get("slurm", "?"), row["verdict"], row.get("why", ""), row.get("bytes", ""))
            print(f"| {site.name} | {site.shape} |", " | ".join(cells).replace("\n", " "), "|", flush=True)
            if options.show:
                print(row.get("said", ""), file=sys.stderr)
    right = [row for row in rows if row["verdict"] in ("understood", "refused")]
    print(f"\n{len(right)} of {len(rows)} understood or refused with the true reason")
    return int(len(right) < len(rows))


if __name__ == "__main__":
    sys.exit(main())
