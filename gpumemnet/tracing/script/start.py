"""Start the user's command within limits, and read its result."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from gpumemnet.errors import TraceError
from gpumemnet.records import frozen
from gpumemnet.tracing.saved.record import RELEASE, SavedProfile, release
from gpumemnet.tracing.script import frameworks, processes
from gpumemnet.tracing.script.bounds import bound, cleaned_up
from gpumemnet.tracing.script.failures import END_OF_INPUT, OWN, READS_INPUT, TOO_LARGE, reached_limit
from gpumemnet.tracing.script.files import COMMAND, COURSE, FAILED, FOLDER, HOOKED, RESULT, STARTED_IN
from gpumemnet.tracing.script.shield import shields, unhooked
from gpumemnet.units import GIB

PACKAGE = Path(__file__).resolve().parents[2]
MAX_PROCESSES = 64
_POLL_S = 0.1
_LOG_TAIL = 4096
_REFUSED = "a trace changes no files, and {} was to be changed: name another folder for results"
_SITECUSTOMIZE = "from gpumemnet.tracing.script import startup_hook\n\nstartup_hook.install()\n"


@frozen
class ScriptLimits:
    """Limits of the script until its steps are done.

    Attributes:
        seconds: Wall time.
        resident_bytes: Resident memory of all its processes together.
    """

    seconds: float = 300.0
    resident_bytes: int = 16 * GIB


@frozen
class Untraced:
    """A script that could not be traced.

    Attributes:
        why: The reason, in one line.
        text: Summary of its model at full depth; empty if no model was found.
    """

    why: str
    text: str


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    limits: ScriptLimits | None = None,
    ways: Sequence[shields.Make] = shields.SHIELDS,
    course: Path | None = None,
) -> SavedProfile | Untraced:
    """Run a training script on a pretended GPU until its optimizer steps are made, then stop it.

    Existing files are not changed. Where the kernel allows copies, no new files are left behind either.

    Args:
        command: The words of the command, as typed by the user.
        environment: The user's environment.
        limits: Limits of time and memory; None for the defaults.
        ways: Ways to protect files; the first that works is used.
        course: Where to put memory over the last step (`tracing.trace.course`); None for nowhere.

    Returns:
        The profile, or the reason why there is none.

    Raises:
        TraceError: The command cannot be started, or no way to protect files works.
    """
    limits = limits or ScriptLimits()
    folder = Path(tempfile.mkdtemp(prefix="rad-script-")).resolve()
    try:
        _prepare(folder)
        with cleaned_up():
            work = partial(_run, list(command), folder, dict(environment), limits, ways)
            why = processes.kept(work, orphaned=partial(_remove, folder))
        if (folder / RESULT).exists():
            if course is not None:
                shutil.copyfile(folder / COURSE, course)
            return SavedProfile.from_text((folder / RESULT).read_text(encoding="utf-8"), path=RESULT)
        message, _, text = (
            (folder / FAILED).read_text(encoding="utf-8") if (folder / FAILED).exists() else ""
        ).partition("\n")
        message = message.removeprefix(OWN) if why.refused else message  # the trace made the refusal
        return Untraced(why=(message or why.ended) + why.refused, text=text)
    finally:
        _remove(folder)


@frozen
class _Why:
    """Possible reasons for a missing result.

    Attributes:
        ended: How the script ended.
        refused: Text to add if the script was refused a change to a file.
    """

    ended: str
    refused: str = ""


def _prepare(folder: Path) -> None:
    """Make the folder that stands first in the script's PYTHONPATH: this package and the start hook."""
    (folder / "gpumemnet").symlink_to(PACKAGE)
    (folder / "sitecustomize.py").write_text(_SITECUSTOMIZE, encoding="utf-8")
    (folder / "tmp").mkdir()
    (folder / HOOKED).write_bytes(b"1")


def _remove(folder: Path) -> None:
    """Remove the folder with all copies in it, including copies of read-only folders."""
    for parent, names, _ in os.walk(folder):
        for path in (os.path.join(parent, name) for name in names):
            if not os.path.islink(path):
                with suppress(OSError):
                    os.chmod(path, stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)


def _run(
    command: list[str],
    folder: Path,
    environment: dict[str, str],
    limits: ScriptLimits,
    ways: Sequence[shields.Make],
) -> _Why:
    """Run the command until there is a result or a limit is reached; return why a result may be missing."""
    before = environment.get("PYTHONPATH")
    environment |= {
        "PYTHONPATH": f"{folder}{os.pathsep}{before}" if before else str(folder),
        FOLDER: str(folder),
        "CUDA_VISIBLE_DEVICES": "",  # hide real GPUs
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "WANDB_MODE": "disabled",
        COMMAND: shlex.join(command),
        RELEASE: release(),
        STARTED_IN: os.readlink("/proc/self/cwd"),  # PWD is right only where a shell has set it
        "TMPDIR": str(folder / "tmp"),  # a killed script does not clean up
    }
    how: dict[str, Any] = {"env": environment, "start_new_session": True}
    with (folder / "log").open("wb") as log, processes.adopting() as started:
        how |= {"stdout": log, "stderr": log, "bound": partial(bound, limits.seconds, os.getpid())}
        try:
            process, shield = shields.start(command, ways, str(folder), **how)
        except OSError as exc:
            raise TraceError(f"cannot start {command[0]}: {exc.strerror}") from exc
        why = ""
        ends = time.monotonic() + limits.seconds
        try:
            while process.poll() is None and not (folder / RESULT).exists() and not why:
                why = _beyond(started.alive(), folder, limits, time.monotonic() - ends)
                time.sleep(_POLL_S)
        finally:
            started.end()
            process.wait()
            refused = shield.end()
    why = why or _last_line(folder / "log", process.returncode)
    return _Why(ended=why, refused=f"; {_REFUSED.format(refused)}" if refused else "")


def _beyond(started: Sequence[int], folder: Path, limits: ScriptLimits, late_s: float) -> str:
    """Return why the script must be ended now; empty if it may continue."""
    past = unhooked.first(started, f"{folder.name}/{HOOKED}")
    if past is not None:
        return unhooked.why(past, str(folder))
    if late_s > 0:
        limit = f"{limits.seconds:.0f} s, the limit of a trace"
        return (
            f"its optimizer made no two steps within {limit}: prepare data beforehand, or trace it with less"
        )
    if sum(map(processes.resident_bytes, started)) > limits.resident_bytes:
        limit = f"{limits.resident_bytes // GIB} GiB of memory, the limit of a trace"
        return f"it took more than {limit}: trace it with less data, or fewer processes"
    if len(started) > MAX_PROCESSES:
        return f"it started more than {MAX_PROCESSES} processes, the limit of a trace: trace it with fewer"
    return ""


def _last_line(log: Path, status: int | None) -> str:
    """Return the last line that the script printed, where a traceback has its message."""
    with log.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - _LOG_TAIL, 0))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    last = "".join(c if c.isprintable() else " " for c in lines[-1])[:300] if lines else "nothing"
    if END_OF_INPUT in last:
        return READS_INPUT
    if reached_limit(last) or status in (-signal.SIGXFSZ, 128 + signal.SIGXFSZ):
        return TOO_LARGE
    other = frameworks.missing(last.partition("No module named '")[2].partition("'")[0])
    if other:
        return frameworks.line(other)
    return f"it ended with status {status} before its optimizer made two steps; its last words: {last}"
