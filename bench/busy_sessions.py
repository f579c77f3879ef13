"""What a hook's child waits for the processor beside busy sessions, with and without a session's own priority.

    python3 bench/busy_sessions.py            # as root; switches the kernel's autogroups on and off, and back

Each job's step is a session of its own, and with autogroups (sched(7), on in most distributions) the kernel shares the
processor among sessions first: niceness counts only inside one.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from slurm_plugin.core.process import child

SWITCH = Path("/proc/sys/kernel/sched_autogroup_enabled")
SESSIONS = 60
WORK_S = 0.2
ROUNDS = 3


def work() -> bytes:
    """Use the processor as long as a slow hook does."""
    began_s = time.process_time()
    while time.process_time() - began_s < WORK_S:
        pass
    return b"done"


def waited_s(*, session_too: bool) -> list[float]:
    """Return the wall times of a child at niceness -20, its session with that priority or without."""
    kept = child._keep_priority
    if not session_too:
        child._keep_priority = lambda: None
    found = []
    for _ in range(ROUNDS):
        began_s = time.monotonic()
        child.in_child(work, timeout_s=120)
        found.append(time.monotonic() - began_s)
    child._keep_priority = kept
    return found


def main() -> None:
    """Print the table."""
    before = SWITCH.read_text()
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
        for _ in range(SESSIONS)
    ]
    try:
        os.nice(-20)
        print(f"{SESSIONS} busy sessions, {os.cpu_count()} cores, {WORK_S} s of work at niceness -20")
        for autogroups in ("1", "0"):
            SWITCH.write_text(autogroups)
            for session_too in (False, True):
                times = waited_s(session_too=session_too)
                print(
                    f"autogroups {'on ' if autogroups == '1' else 'off'}  session {-20 if session_too else 0:3}  "
                    f"median {statistics.median(times):5.2f} s  longest {max(times):5.2f} s"
                )
    finally:
        SWITCH.write_text(before)
        for one in busy:
            one.kill()


if __name__ == "__main__":
    main()
