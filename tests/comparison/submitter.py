"""Submits what standard input lists, as the user that runs it, and prints what each submission gave: JSON both ways.

Only the standard library: it runs as a user of the cluster.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def submit(order: dict[str, Any], limit_s: float) -> dict[str, Any]:
    """Run one command in its folder, and return its status and what it printed."""
    stdin = None
    argv = order["argv"]
    if argv[-1] == "-":
        argv, stdin = argv[:-1], order["stdin"]
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=order["cwd"],
            env={**os.environ, **order["env"]},
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        return {"name": order["name"], "rc": "no end", "out": "", "err": ""}
    return {"name": order["name"], "rc": done.returncode, "out": done.stdout, "err": done.stderr}


def main() -> None:
    """Submit them all, a few at a time; those that wait for their job in threads of their own."""
    reported = json.load(sys.stdin)
    with ThreadPoolExecutor(reported["threads"]) as pool:
        for answer in pool.map(lambda order: submit(order, reported["limit_s"]), reported["orders"]):
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
