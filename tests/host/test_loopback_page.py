"""A page for the person at this machine: everyone else is refused, whatever they send."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import time
from collections.abc import Iterator
from urllib.request import urlopen

import pytest

from rocsteady.host.loopback_page import MOST_AT_ONCE, WITHIN, LoopbackPage

SECRET = "the page itself"  # noqa: S105 - no password


@pytest.fixture
def page() -> Iterator[LoopbackPage]:
    served = LoopbackPage(lambda: f"<p>{SECRET}</p>", "default-src 'none'")
    yield served
    served.close()


def port(page: LoopbackPage) -> int:
    return int(page.address.split(":")[2].split("/")[0])


def answer(page: LoopbackPage, request: bytes) -> bytes:
    """Send bytes and return all that comes back."""
    with socket.create_connection(("127.0.0.1", port(page)), timeout=10) as connection:
        received = b""
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                received += piece
        except ConnectionError:
            pass
        return received


def test_whoever_has_the_address_gets_the_page(page: LoopbackPage) -> None:
    with urlopen(page.address) as answered:  # noqa: S310 - our own
        assert answered.read().decode() == f"<p>{SECRET}</p>"
        assert answered.headers["Content-Security-Policy"] == "default-src 'none'"
        assert answered.headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in answered.headers


def hostile(page: LoopbackPage) -> Iterator[bytes]:
    """Yield 200 requests that must not be answered with the page."""
    token, host = page.token, f"127.0.0.1:{port(page)}"
    paths = [
        "/", "", "*", "//", f"/{token}", f"/{token[:-1]}/", f"/{token}x/", f"/{token.swapcase()}/",
        f"//{token}/", f"///{token}/",
        f"/{token}/../../etc/passwd", f"/{token}/etc/passwd", f"/./{token}/",
        f"/{token}/?", f"/?{token}", f"/{token}%2f", "/../../../../etc/passwd", "/%2e%2e/x",
        f"http://evil.example/{token}/", f"/{token}//", "/favicon.ico", f"/{token}/\x00", "/é",
        "/" + "a" * 60_000,
    ]  # fmt: skip
    for path in paths:
        yield f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode("utf-8", "replace")
    for other in (
        "evil.example",
        "",
        f"evil.example:{port(page)}",
        "127.0.0.1",
        "[::1]",
        f"{host}, x",
    ):
        yield f"GET /{token}/ HTTP/1.1\r\nHost: {other}\r\n\r\n".encode()
    for origin in ("http://evil.example", "null", "https://localhost", f"http://{host}.evil", ""):
        yield f"GET /{token}/ HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n\r\n".encode()
    yield f"GET /{token}/ HTTP/1.1\r\n\r\n".encode()
    yield f"GET /{token}/ HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\n\r\n".encode()
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "HEAD", "PATCH", "get"):
        yield f"{method} /{token}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    chance = random.Random(19)  # noqa: S311 - the same every time
    while True:
        junk = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 400)))
        yield chance.choice((b"", b"GET ", b"GET / HTTP/1.1\r\n")) + junk + b"\r\n\r\n"


def test_200_hostile_requests_are_refused(
    page: LoopbackPage, capfd: pytest.CaptureFixture[str]
) -> None:
    requests = hostile(page)
    for _ in range(200):
        request = next(requests)
        answered = answer(page, request)
        assert SECRET.encode() not in answered, request
        assert b" 200 " not in answered.partition(b"\r\n")[0], request
        assert page.token.encode() not in answered, request
    with urlopen(page.address) as still:  # noqa: S310 - our own
        assert SECRET in still.read().decode()
    said = capfd.readouterr()
    assert said.out + said.err == ""


def test_connections_that_send_nothing_keep_nobody_out_for_a_moment(page: LoopbackPage) -> None:
    address = ("127.0.0.1", port(page))
    silent = [socket.create_connection(address) for _ in range(MOST_AT_ONCE * 2)]
    with urlopen(page.address, timeout=WITHIN / 2) as answered:  # noqa: S310 - our own
        assert SECRET in answered.read().decode()
    for each in silent:
        each.close()


def test_a_request_that_arrives_byte_by_byte_is_dropped_in_time(page: LoopbackPage) -> None:
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", port(page)), timeout=10) as connection:
        connection.sendall(f"GET /{page.token}/ HTTP/1.1\r\n".encode())
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - started < WITHIN * 3:
                connection.sendall(b"X-A: b\r\n")
                time.sleep(0.2)
    assert time.monotonic() - started < WITHIN * 2


def test_its_own_origin_is_served(page: LoopbackPage) -> None:
    origin = f"http://127.0.0.1:{port(page)}"
    request = f"GET /{page.token}/ HTTP/1.1\r\nHost: {origin[7:]}\r\nOrigin: {origin}\r\n\r\n"
    assert SECRET.encode() in answer(page, request.encode())


def test_it_listens_on_loopback_only_and_each_token_is_new(page: LoopbackPage) -> None:
    assert page.address.startswith("http://127.0.0.1:")
    other = LoopbackPage(lambda: "", "")
    try:
        assert other.token != page.token
        assert re.fullmatch(r"[A-Za-z0-9_-]{32}", page.token)
    finally:
        other.close()
