"""Measure one refresh of `rad top`: 100 simulated nodes of 8 GPUs with 3 jobs each, on this machine.

.rad/venv/bin/python bench/cost/top.py [NODES]

Another process answers for all nodes, each at an address of its own (127.1.0.N), with a state that is made beforehand:
what a node's own rad-monitor takes for that runs on the node. One refresh is asking all nodes, reading what they say,
and drawing it with curses on a terminal of 200 columns and 60 lines.
"""

from __future__ import annotations

import asyncio
import curses
import fcntl
import json
import multiprocessing
import os
import statistics
import struct
import sys
import termios
import time
from multiprocessing.synchronize import Event

from slurm_plugin.admin.top.fleet import Fleet
from slurm_plugin.admin.top.frame import frame
from slurm_plugin.admin.top.gather import Gatherer
from slurm_plugin.admin.top.screens import SCREENS
from slurm_plugin.admin.top.terminal import _paint, _styles
from slurm_plugin.admin.top.view import View
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.export.status import GpuStatus, Happened, JobStatus, NodeStatus
from slurm_plugin.monitor.export.status_codec import to_text

PORT, GPUS, JOBS = 19835, 8, 3
WIDTH, HEIGHT, REPEATS = 200, 60, 40
AIM_MS = 200.0


def main() -> None:
    """Print the times."""
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    ready = multiprocessing.Event()
    answering = multiprocessing.Process(target=_answer, args=(nodes, ready), daemon=True)
    answering.start()
    ready.wait(30)
    try:
        reported = _on_a_terminal(nodes)
    finally:
        answering.terminate()
    print(
        f"{nodes} nodes, {nodes * GPUS} GPUs, {nodes * GPUS * JOBS} jobs; ms, median (largest of {REPEATS})"
    )
    for name, times in reported.items():
        print(f"{name:<28}{statistics.median(times):>8.1f} ({max(times):.1f})")
    print(f"aim: {AIM_MS:g}")


def _answer(nodes: int, ready: Event) -> None:
    """Answer for every node, as its rad-monitor would."""
    now_s = time.time() + 3600  # stays fresh: see _Ahead

    async def run() -> None:
        for number in range(nodes):
            body = to_text(_state(number, now_s))
            head = f"HTTP/1.0 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()

            async def one(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bytes = head + body
            ) -> None:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer)
                await writer.drain()
                writer.close()

            await asyncio.start_server(one, _host(number), PORT)
        ready.set()
        await asyncio.Event().wait()

    asyncio.run(run())


def _host(number: int) -> str:
    return f"127.1.{number // 250}.{number % 250 + 1}"


def _state(number: int, now_s: float) -> NodeStatus:
    return NodeStatus(
        host=f"gpu{number:03}",
        time_s=now_s,
        gpus=tuple(_gpu(number, index) for index in range(GPUS)),
        happened=tuple(Happened(time_s=now_s - n, job_id=n, event="runs again") for n in range(5)),
    )


def _gpu(number: int, index: int) -> GpuStatus:
    jobs = tuple(
        JobStatus(
            job_id=number * 100 + index * 10 + n,
            user_id=n,
            kind="shared",
            booked_bytes=24 * GIB,
            estimate_bytes=20 * GIB,
            used_bytes=(15 + n) * GIB,
            peak_bytes=19 * GIB,
            smact=0.2,
        )
        for n in range(JOBS)
    )
    return GpuStatus(
        index=index,
        uuid=f"GPU-{number:08}-0000-0000-0000-{index:012}",
        name="NVIDIA H200",
        state="ok",
        usable_bytes=141 * GIB,
        used_bytes=48 * GIB,
        booked_bytes=72 * GIB,
        unmanaged_bytes=0,
        smact=0.6,
        smact_source="nvml-gpm",
        averaged=True,
        jobs=jobs,
    )


class _Ahead(SystemClock):
    """A clock by which the states that were made beforehand are fresh."""

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s

    def now_s(self) -> float:
        """Return the time of the states."""
        return self._now_s


def _on_a_terminal(nodes: int) -> dict[str, list[float]]:
    """Measure in a child that has a terminal of its own."""
    reader, writer = os.pipe()
    child, terminal = os.forkpty()
    if child == 0:
        os.environ["TERM"] = "xterm-256color"
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", HEIGHT, WIDTH, 0, 0))
        os.write(writer, json.dumps(curses.wrapper(lambda window: _measure(window, nodes))).encode())
        os._exit(0)
    os.close(writer)
    while True:
        try:
            if not os.read(terminal, 1 << 16):
                break
        except OSError:  # the child has closed its side
            break
    with os.fdopen(reader, "rb") as reported:
        found: dict[str, list[float]] = json.loads(reported.read())
    os.waitpid(child, 0)
    return found


def _measure(window: curses.window, nodes: int) -> dict[str, list[float]]:
    places = {f"gpu{number:03}": (_host(number), PORT) for number in range(nodes)}
    gatherer = Gatherer(places, clock=_Ahead(time.time() + 3600), queue=None)
    styles = _styles()
    times: dict[str, list[float]] = {"ask all nodes and read": []}
    for _ in range(REPEATS):
        start_s = time.perf_counter()
        fleet = gatherer.look()
        looked_s = time.perf_counter()
        times["ask all nodes and read"].append((looked_s - start_s) * 1000)
        assert all(not node.trouble for node in fleet.nodes), [n.trouble for n in fleet.nodes if n.trouble][
            :3
        ]
        for number, screen in enumerate(SCREENS):
            times.setdefault(f"draw {screen.name}", []).append(_drawn_ms(window, fleet, number, styles))
        whole = times["ask all nodes and read"][-1] + times["draw GPUs"][-1]
        times.setdefault("one refresh (ask and draw)", []).append(whole)
    return times


def _drawn_ms(window: curses.window, fleet: Fleet, screen: int, styles: dict) -> float:  # type: ignore[type-arg]
    start_s = time.perf_counter()
    _paint(window, frame(fleet, View(screen=screen), width=WIDTH, height=HEIGHT), styles)
    return (time.perf_counter() - start_s) * 1000


if __name__ == "__main__":
    main()
