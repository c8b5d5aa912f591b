"""A schema registry for tests of the console: it answers as Confluent's does, or as a hostile one."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler], None]


class RegistryServer(ThreadingHTTPServer):
    """A context manager. `answers` are by path, `asked` are the requests that came, as method and path.

    `logins` are their Authorization headers. `certificate`: a PEM file with a key, for TLS.
    """

    daemon_threads = True

    def __init__(self, certificate: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.ended = threading.Event()  # what a hostile answer waits for
        self.logins: list[str | None] = []
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.server_address[1]}/v7"

    def __enter__(self) -> RegistryServer:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client leaves a hostile answer."""

    def add(self, number: int, schema: Any, **more: Any) -> None:
        """A schema with an id."""
        self.answers[f"/v7/schemas/ids/{number}"] = reply({"schema": json.dumps(schema), **more})


class _Handler(BaseHTTPRequestHandler):
    server: RegistryServer

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(1000)
        if not self.parse_request():
            return
        self.server.asked.append(f"{self.command} {self.path}")
        self.server.logins.append(self.headers.get("Authorization"))
        self.server.answers.get(self.path, reply({"error_code": 40403, "message": "no"}, 404))(self)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


def reply(found: Any, status: int = 200, **headers: str) -> Answer:
    """An answer: JSON, or bytes."""
    body = found if isinstance(found, bytes) else json.dumps(found).encode()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def endless(handler: BaseHTTPRequestHandler) -> None:
    """Much faster than it is read."""
    handler.send_response(200)
    handler.end_headers()
    while not handler.server.ended.is_set():  # type: ignore[attr-defined]
        handler.wfile.write(b"[" * 65536)


def silent(handler: BaseHTTPRequestHandler) -> None:
    """No answer until the test ends."""
    handler.server.ended.wait()  # type: ignore[attr-defined]


def slow_head(handler: BaseHTTPRequestHandler) -> None:
    """A head that never ends, a byte at a time, so that no read waits long."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    while not handler.server.ended.wait(0.02):  # type: ignore[attr-defined]
        handler.wfile.write(b"x")
