"""Serves one page to the person at this machine: on loopback, behind a token, and nothing else."""

from __future__ import annotations

import contextlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR, socket

HOST = "127.0.0.1"
Request = socket | tuple[bytes, socket]  # as the library has it
MOST_AT_ONCE = 16  # connections
WITHIN = 5.0  # seconds for a request to arrive
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class LoopbackPage:
    """A server for a page that is made anew whenever it is asked for."""

    def __init__(self, render: Callable[[], str], policy: str, *, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(24)
        self._server = _Server((HOST, port), _handler(self.token, render, policy))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Return what to open in a browser."""
        return f"http://{HOST}:{self._server.server_address[1]}/{self.token}/"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._lock = threading.Lock()
        self._silent: dict[Request, float] = {}  # without a whole request so far: since when
        self._answered: set[Request] = set()

    def process_request(self, request: Request, client_address: object) -> None:
        with self._lock:
            if len(self._answered) >= MOST_AT_ONCE:
                self.shutdown_request(request)
                return
            if len(self._silent) + len(self._answered) >= MOST_AT_ONCE:
                self._drop(next(iter(self._silent)))
            self._silent[request] = time.monotonic()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Request, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._silent.pop(request, None)
                self._answered.discard(request)

    def service_actions(self) -> None:
        """Drop connections that never say what they want, also those that say it byte by byte."""
        with self._lock:
            late = time.monotonic() - WITHIN
            for request in [each for each, since in self._silent.items() if since < late]:
                self._drop(request)

    def answers(self, request: Request) -> None:
        """Take note that the whole request has arrived."""
        with self._lock:
            if self._silent.pop(request, None) is not None:
                self._answered.add(request)

    def _drop(self, request: Request) -> None:
        self._silent.pop(request)
        if isinstance(request, socket):
            with contextlib.suppress(OSError):  # it was closed at this moment
                request.shutdown(SHUT_RDWR)  # whoever waits for it goes on, and closes it

    def handle_error(self, request: Request, client_address: object) -> None:
        """Say nothing of a connection that broke: the terminal belongs to the run."""


def _handler(token: str, render: Callable[[], str], policy: str) -> type[BaseHTTPRequestHandler]:
    class PageRequest(BaseHTTPRequestHandler):
        server: _Server
        timeout = WITHIN
        server_version, sys_version = "rocsteady", ""
        protocol_version = "HTTP/1.0"  # one request a connection

        def parse_request(self) -> bool:
            whole = super().parse_request()
            self.server.answers(self.request)
            return whole

        def do_GET(self) -> None:
            if not _is_ours(self, token):
                self.send_error(HTTPStatus.NOT_FOUND, "Not found")
                return
            try:
                page = render().encode()
            except Exception:  # noqa: BLE001 - a journal that cannot be read now; the next may be
                self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, "Not available")
                return
            self.send_response(HTTPStatus.OK)
            for name, value in {**HEADERS, "Content-Security-Policy": policy}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def send_error(
            self, code: int, message: str | None = None, explain: str | None = None
        ) -> None:
            """Refuse in one word: the library would repeat what was asked for."""
            del explain
            del message
            words = b"refused\n"
            self.send_response(code)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(words)))
            self.end_headers()
            self.wfile.write(words)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Log nothing: the path holds the token."""

        def version_string(self) -> str:
            return "rocsteady"

    return PageRequest


def _is_ours(request: BaseHTTPRequestHandler, token: str) -> bool:
    """Tell a request of this page from one that another page made, or that guesses."""
    port = request.connection.getsockname()[1]
    hosts = [f"{HOST}:{port}"], [f"localhost:{port}"]
    origins = [], *([f"http://{host}"] for (host,) in hosts)
    # The library's own path is tidied up: //TOKEN/ would do as well.
    path = request.requestline.split()[1].encode("utf-8", "replace")
    return (
        request.headers.get_all("Host") in hosts
        and request.headers.get_all("Origin", []) in origins
        and hmac.compare_digest(path, f"/{token}/".encode())
    )
