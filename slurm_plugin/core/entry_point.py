"""End programs that users and systemd start with one line for the reason and an exit status for its kind.

| status | means |
|---|---|
| 0 | fine |
| 1 | a finding: something is wrong with the site, and the line says what |
| 2 | usage: an option, rad.toml or another file of the caller is wrong; the line names it and the fix |
| 3 | a bug in RAD: its traceback is in the file that the line names |

Hooks follow other rules, because Slurm may drain a node depending on their status: exits.py.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm_plugin.core.config.load import Paths
from slurm_plugin.core.errors import ConfigError, EstimateError, RadError, WireError
from slurm_plugin.core.exits import Exit

BUG_LOG = "bugs.log"
_CALLERS_FAULT = (ConfigError, EstimateError, WireError)


@contextmanager
def plain_end(program: str, *, passes: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
    """Turn every exception into one line on stderr and an exit status.

    Args:
        program: What the line begins with.
        passes: Exceptions that an outer caller handles, such as click's.

    Raises:
        SystemExit: With the status of the table above, unless all went well.
    """
    try:
        yield
    except passes:
        raise
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Exit.FINDINGS)
    except RadError as exc:
        print(f"{program}: {exc}", file=sys.stderr, flush=True)
        sys.exit(Exit.USAGE if isinstance(exc, _CALLERS_FAULT) else Exit.FINDINGS)
    except Exception as exc:  # noqa: BLE001 - last resort of every program: a bug ends in one line, too
        where = _keep_traceback(program, exc)
        line = " ".join(f"{type(exc).__name__}: {exc}".split())
        print(f"{program}: internal error, please report it: {line}; {where}", file=sys.stderr, flush=True)
        sys.exit(Exit.BUG)


def _keep_traceback(program: str, error: BaseException) -> str:
    """Append an error's traceback to a file in the log folder, else in the user's own; return where."""
    import platform
    import traceback

    text = "".join(traceback.format_exception(error))
    now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    head = f"{now} {program} {' '.join(sys.argv[1:])}\nPython {platform.python_version()}\n"
    for folder in _folders():
        path = folder / BUG_LOG
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(path, flags, 0o600)
        except OSError:
            continue
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{head}{text}\n")
        return f"its traceback is in {path}"
    return f"no log could be written, so here it is:\n{text}"


def _folders() -> tuple[Path, ...]:
    log = Path(Paths().log)
    state = os.environ.get("XDG_STATE_HOME")
    try:
        own = Path(state) if state else Path.home() / ".local" / "state"
    except RuntimeError:  # a user without an entry on this machine
        return (log,)
    return (log, own / "rad")
