"""Run a hook in which one call to the outside hangs, as a dead file server or driver makes it: only SIGKILL ends it.

    python -I hanging_hook.py MODULE CALLS [SITE] -- --config rad.toml

Every call of a built-in function that reaches the kernel passes the interpreter's profiler, so a call that somebody
adds to a hook later is seen here without a word about it. Without SITE the calls that were made are written to CALLS,
one line each; with it, that call hangs each time in each process but the one that was started first.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import time
from types import FrameType
from typing import Any

MODULES = {"posix", "fcntl", "select", "_socket", "_posixsubprocess", "_io", "io"}
OBJECTS = {"FileIO", "BufferedReader", "BufferedWriter", "TextIOWrapper", "socket", "poll", "ScandirIterator"}
PACKAGES = ("slurm_plugin", "prolog", "epilog")
NO_SYSTEM_CALLS = {
    *(
        "fspath",
        "_exit",
        "strerror",
        "register_at_fork",
        "get_blocking",
        "text_encoding",
        "getpid",
        "geteuid",
    ),
    *(
        "WIFSTOPPED",
        "WSTOPSIG",
        "WIFSIGNALED",
        "WTERMSIG",
        "WIFEXITED",
        "WEXITSTATUS",
        "waitstatus_to_exitcode",
    ),
    *("fileno", "tell", "closed", "readable", "seekable", "register", "cpu_count", "getrandom", "sysconf"),
}


def site_of(frame: FrameType, call: Any) -> str | None:
    """Return a name for a call that may hang: the function, and where in which file it is called."""
    owner = type(getattr(call, "__self__", None)).__name__
    module = getattr(call, "__module__", None)
    if (module not in MODULES and owner not in OBJECTS) or call.__name__ in NO_SYSTEM_CALLS:
        return None
    ours: FrameType | None = frame
    while ours is not None and not any(f"/{package}/" in ours.f_code.co_filename for package in PACKAGES):
        ours = ours.f_back
    caller = ours or frame
    where = "/".join(caller.f_code.co_filename.rsplit("/", 2)[-2:])
    return f"{module or owner}.{call.__name__} {where}:{caller.f_lineno} {caller.f_code.co_name}"


def main() -> None:
    module, calls, *rest = sys.argv[1:]
    wanted = rest[0] if rest[0] != "--" else None
    sys.argv = [module, *rest[rest.index("--") + 1 :]]
    first, seen = os.getpid(), set()
    log = os.open(calls, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def watch(frame: FrameType, event: str, call: Any) -> None:
        if event != "c_call" or os.getpid() == first or os.getuid() != os.geteuid():
            return
        site = site_of(frame, call)
        if site is None:
            return
        if wanted is None and site not in seen:
            seen.add(site)
            os.write(log, f"{site}\n".encode())
        if site == wanted:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            while True:
                time.sleep(60)

    from slurm_plugin.core import last_good, supervise

    last_good.READ_S = 0.3

    supervise.LIMITS = supervise.Limits(work_s=1.2, end_s=2.2, least_s=0.8)
    sys.setprofile(watch)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


main()
