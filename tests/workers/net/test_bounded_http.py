"""Documents from a URL are bounded in size and time, whatever the server sends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from odradek.workers.net.bounded_http import fetch

from ...security.sasl.bearer import RSA, jwks

KEYS = jwks(RSA)


# -- over HTTP


@contextmanager
def server(answer: Any) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def do_CONNECT(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            pass

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{made.server_address[1]}/keys?secret=topsecret"
    finally:
        made.shutdown()
        made.server_close()
        thread.join(30)


def reply(handler: BaseHTTPRequestHandler, body: bytes, code: int = 200, **headers: str) -> None:
    handler.send_response(code)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def test_document_over_the_size_limit_is_refused() -> None:
    long = server(lambda handler: reply(handler, b"x" * 5000))
    with long as url, pytest.raises(OSError, match="more than 4000 bytes"):
        fetch(url, most=4000)


@pytest.mark.parametrize("part", ["head", "document", "refusal"])
def test_endless_answer_times_out(part: str) -> None:
    """Each byte comes in time, but the answer does not end in time."""

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(500 if part == "refusal" else 200)
        handler.flush_headers()
        if part != "head":
            handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"x")
                threading.Event().wait(0.01)
        except OSError:
            pass

    with server(drip) as url, pytest.raises(OSError, match="takes too long"):
        fetch(url, whole_s=0.3)


def test_proxy_that_never_ends_its_answer_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """http.client reads it while it connects."""

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        try:
            while True:
                handler.send_header("X", "y")
                handler.flush_headers()
                threading.Event().wait(0.01)
        except OSError:
            pass

    with server(drip) as proxy:
        monkeypatch.setenv("https_proxy", proxy.partition("/keys")[0])
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        with pytest.raises(OSError, match="takes too long"):
            fetch("https://127.0.0.1:1/", whole_s=0.3)


def test_silent_server_times_out() -> None:
    until = threading.Event()
    with server(lambda handler: until.wait(20)) as url, pytest.raises(OSError):
        try:
            fetch(url, whole_s=0.3)
        finally:
            until.set()


@pytest.mark.parametrize("location", ["file:///etc/passwd", "https://127.0.0.1:1/", "ftp://127.0.0.1/"])
def test_redirect_to_another_scheme_is_refused(location: str) -> None:
    with server(lambda handler: reply(handler, b"", 302, Location=location)) as url:
        with pytest.raises(OSError) as caught:
            fetch(url)
        assert "topsecret" not in str(caught.value)


def test_error_status_is_reported_without_the_url() -> None:
    with server(lambda handler: reply(handler, b"", 403)) as url, pytest.raises(OSError) as caught:
        fetch(url)
    assert str(caught.value) == "the server at 127.0.0.1 answers 403"
