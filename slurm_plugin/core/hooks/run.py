"""Start a hook of a GPU node: its work in one child, while another reads rad.toml."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

from slurm_plugin.core.config.timed_read import TimelyFile
from slurm_plugin.core.hooks.args import config_path
from slurm_plugin.core.hooks.supervise import LIMITS, hook_started_s, supervised


def run_hook(name: str, load: Callable[[], ModuleType]) -> int:
    """Run a hook and return its exit status: always 0, because any other drains the node.

    Args:
        name: "prolog" or "epilog".
        load: Returns the module with the hook's `work` and `rescue`; only a child calls it.
    """
    started_s = hook_started_s()

    def work() -> int:
        rad_toml = TimelyFile(config_path(sys.argv))
        return int(load().work(rad_toml, started_s=started_s))

    def rescue(why: str) -> int:
        rad_toml = TimelyFile(config_path(sys.argv))
        return int(load().rescue(rad_toml, why, started_s=started_s))

    try:
        supervised(work, rescue, started_s=started_s, limits=LIMITS[name])
    except Exception as exc:  # noqa: BLE001 - no error of any kind may drain the node
        print(f"rad {name}: {exc}", file=sys.stderr)
    return 0
