"""Epilog of a GPU node: `python -I -m epilog --config /etc/rad/rad.toml`, as root, in slurmd's environment.

It always exits with status 0, because any other drains the node. This process enforces the time limit; the work is in
`epilog/hook.py`, which its child loads.
"""

from __future__ import annotations

import sys
from types import ModuleType

from slurm_plugin.core.hooks.run import run_hook


def main() -> int:
    """Run the hook."""
    return run_hook("epilog", _load)


def _load() -> ModuleType:
    from epilog import hook

    return hook


if __name__ == "__main__":
    sys.exit(main())
