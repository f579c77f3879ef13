"""Holds memory of a simulated GPU: holder.py FOLDER GPU GIB READY [HOW...]

READY is written once it holds, with its pid. HOW is what it does before, in this order:
orphan      become init's, in a session of its own, after the environment was changed to what stands in CLAIM
hidden      have root own what lies in its folder in /proc (PR_SET_DUMPABLE)
mapped      take another user id of a namespace of its own, as newuidmap(1) allows; READY.map is written for root to map
again       stay as a parent, hidden too, that starts it again whenever it ends
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus

folder, gpu, gib, ready = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
how = sys.argv[5:]
libc = ctypes.CDLL(None, use_errno=True)
signal.alarm(90)


def hide() -> None:
    libc.prctl(4, 0, 0, 0, 0)


if "orphan" in how:
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    if "CLAIM" in os.environ:  # what /proc shows is what a program was started with
        words = [word for word in sys.argv if word != "orphan"]
        environment = {**os.environ, "SLURM_JOB_ID": os.environ["CLAIM"]}
        del environment["CLAIM"]
        os.execve(sys.executable, [sys.executable, *words], environment)
if "mapped" in how:
    assert libc.unshare(0x10000000) == 0, os.strerror(ctypes.get_errno())  # CLONE_NEWUSER
    ready.with_suffix(".map").write_text(str(os.getpid()))
    while not Path("/proc/self/uid_map").read_text():
        time.sleep(0.02)
    os.umask(0)
    ready.touch()
    os.setresuid(1, 1, 1)
while "again" in how:
    hide()
    child = os.fork()
    if not child:
        break
    os.waitpid(child, 0)
if "hidden" in how:
    hide()
SimulatedGpus(folder).hold(gpu, gib * GIB)
ready.write_text(str(os.getpid()))
time.sleep(80)
