"""Run hooks in which one call to the outside hangs, as a dead file server or driver makes it: only SIGKILL ends it.

    python -I hanging_hook.py < requests > answers

Each request is a line of JSON: {"id", "hook", "rad_toml", "env", "site", "calls", "work_s", "end_s"}; so is each
answer: {"id", "status", "seconds"}. Every hook runs in a process of its own, which is forked from this one: nothing is
loaded twice.

Every call of a built-in function that reaches the kernel passes the interpreter's profiler, so a call that a user
adds to a hook later is seen here without a word about it. Where `site` is null, the calls that were made are written
to the file `calls`, one line each, and the hook has all the time it wants; else that call hangs each time in each
process of the hook but the one that was started first.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from types import FrameType
from typing import Any

from slurm_plugin.core.config import timed_read
from slurm_plugin.core.hooks import supervise

UNHURRIED = supervise.HookTimeLimits(work_s=60, end_s=90)

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
    """Return a name for a call that may hang: the function, and where in which file it is called.

    All imports count as one place.
    """
    owner = type(getattr(call, "__self__", None)).__name__
    module = getattr(call, "__module__", None)
    if (module not in MODULES and owner not in OBJECTS) or call.__name__ in NO_SYSTEM_CALLS:
        return None
    rads: FrameType | None = frame
    while rads is not None and not any(f"/{package}/" in rads.f_code.co_filename for package in PACKAGES):
        if rads.f_code.co_filename.startswith("<frozen importlib"):
            return f"{module or owner}.{call.__name__} import"
        rads = rads.f_back
    caller = rads or frame
    where = "/".join(caller.f_code.co_filename.rsplit("/", 2)[-2:])
    return f"{module or owner}.{call.__name__} {where}:{caller.f_lineno} {caller.f_code.co_name}"


def watch_calls(calls: str, wanted: str | None) -> None:
    """Let the wanted call hang in every process that comes from this one, or write down all calls."""
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

    sys.setprofile(watch)


def run_one(request: dict[str, Any]) -> None:
    """In a process of its own: run one hook and answer."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    start_s = time.monotonic()
    child = os.fork()
    if child == 0:
        status = 99
        try:
            quiet = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1):
                os.dup2(quiet, stream)
            os.environ.clear()
            os.environ.update(request["env"])
            name = request["hook"]
            sys.argv = [name, "--config", request["rad_toml"]]
            limits = UNHURRIED
            if request["site"] is not None:
                work_s, end_s = request["work_s"], request["end_s"]
                limits = supervise.HookTimeLimits(work_s=work_s, end_s=end_s, least_s=work_s)
            supervise.LIMITS.update(dict.fromkeys(supervise.LIMITS, limits))
            supervise._UNWIND_S = 0.1
            timed_read.READ_S = 30.0 if request["site"] is None else 0.3
            watch_calls(request["calls"], request["site"])
            status = importlib.import_module(f"{name}.__main__").main()
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    answer = {"id": request["id"], "status": status, "seconds": time.monotonic() - start_s}
    os.write(1, f"{json.dumps(answer)}\n".encode())


def main() -> None:
    """Answer requests, many at once."""
    for name in ("prolog", "epilog"):
        importlib.import_module(f"{name}.hook")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        if os.fork() == 0:
            try:
                run_one(json.loads(line))
            finally:
                os._exit(0)


main()
