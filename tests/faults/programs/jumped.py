"""Run a hook or a daemon whose clock jumps: python -I jumped.py OFFSET_FILE MODULE [ARGUMENTS].

The file holds seconds that time.time() is off by, and is read at each call. The machine's own clock stays as it is.
"""

from __future__ import annotations

import runpy
import sys
import time


def main() -> None:
    """Run the module with that clock."""
    path, module = sys.argv[1:3]
    true_time = time.time

    def now_s() -> float:
        with open(path, encoding="ascii") as file:
            return true_time() + float(file.read() or 0)

    time.time = now_s
    del sys.argv[1:3]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
