"""Serve rad-monitor's results over HTTP: /metrics for Prometheus, /status for `rad top`, / for a browser.

It answers every client that can reach the address: it reports only what squeue reports, no part of a job's output, and
nothing can be changed. Bind it to the network of the cluster's own machines.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from socket import SHUT_RDWR
from socketserver import ThreadingMixIn
from threading import BoundedSemaphore, Thread
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from slurm_plugin.core.errors import ConfigError
from slurm_plugin.monitor.export.board import Board
from slurm_plugin.monitor.export.hook_counts import HookCounts
from slurm_plugin.monitor.export.page import HEADERS, page
from slurm_plugin.monitor.export.status_codec import to_text

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

PORT = 9835
"""Default port of `rad top`."""

PATIENCE_S = 5.0
"""A client that sends nothing for so long is disconnected."""

AT_ONCE = 8
"""Clients served at a time; Prometheus and a few `rad top` are far fewer."""

SLOT_S = 0.2
"""Until a disconnected client's thread has ended."""

_NO_METRICS = b"metrics need prometheus-client: pip install 'rad-slurm[monitor]'\n"


def serve(address: str, log: Path) -> Board:
    """Serve over HTTP in separate threads.

    Args:
        address: "PORT" or "ADDRESS:PORT"; a bare port is served on this machine alone.
        log: paths.log, whose events are counted.

    Returns:
        The board whose state is served.

    Raises:
        ConfigError: The address cannot be used.
    """
    board = Board(HookCounts(log))
    Thread(target=listen(address, _app(board)).serve_forever, name="rad-monitor-web", daemon=True).start()
    return board


def listen(address: str, app: WSGIApplication) -> WSGIServer:
    """Return a listening server; `serve_forever()` lets it answer.

    Args:
        address: "PORT" or "ADDRESS:PORT"; a bare port is served on this machine alone.
        app: The WSGI application.

    Raises:
        ConfigError: The address cannot be used.
    """
    host, port = split_address(address)
    try:
        return make_server(host or "127.0.0.1", port, app, server_class=_Server, handler_class=_Handler)
    except (OSError, OverflowError) as exc:
        raise ConfigError(
            f"metrics address {address}: {exc}; write it like {PORT} or 0.0.0.0:{PORT}"
        ) from exc


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of "PORT" or "ADDRESS:PORT"; the host is "" for a bare port.

    Raises:
        ConfigError: It is neither.

    >>> split_address("0.0.0.0:9835"), split_address("9835")
    (('0.0.0.0', 9835), ('', 9835))
    """
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or ":" in host:
        raise ConfigError(f"metrics address {address}: write it like {PORT} or 0.0.0.0:{PORT}")
    return host, int(port)


class _Server(ThreadingMixIn, WSGIServer):
    """Serves a few clients at a time, as the guard needs threads, too; one more disconnects the one that came first.

    A client that has sent its request has its answer within milliseconds; the one that came first sends none.
    """

    daemon_threads = True
    request_queue_size = 16

    def __init__(self, *args: Any, **more: Any) -> None:
        self._turns = BoundedSemaphore(AT_ONCE)
        self._served: dict[Any, None] = {}
        super().__init__(*args, **more)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; if none is free, disconnect the client that came first."""
        if not self._turns.acquire(blocking=False):
            for oldest in list(self._served)[:1]:
                with suppress(OSError):  # it ended meanwhile
                    oldest.shutdown(SHUT_RDWR)
            if not self._turns.acquire(timeout=SLOT_S):
                self.shutdown_request(request)
                return
        self._served[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._served.pop(request, None)
            self._turns.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and free the thread's slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._served.pop(request, None)
            self._turns.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: a client that disconnects is no problem of RAD's."""


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE_S

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a line for each scrape would fill the journal."""


def _app(board: Board) -> WSGIApplication:
    try:
        from slurm_plugin.monitor.export.metrics import metrics_app

        metrics = metrics_app(board)
    except ImportError:
        metrics = None

    def app(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/status":
            text = to_text(board.status())
            start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(text)))])
            return [text]
        if path == "/":
            status = board.status()
            text = page([(status.host, status, "")], time_s=status.time_s)
            start("200 OK", [*HEADERS, ("Content-Length", str(len(text)))])
            return [text]
        if path == "/metrics" and metrics is not None:
            return metrics(environ, start)
        start("404 Not Found", [("Content-Type", "text/plain")])
        return [_NO_METRICS if path == "/metrics" else b"/, /metrics or /status\n"]

    return app
