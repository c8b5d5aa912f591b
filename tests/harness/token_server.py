"""A server of bearer tokens (OAuth client credentials) with adjustable faults; a test's key signs its tokens."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
import time
import urllib.parse
from typing import Any, NamedTuple

from ..security.sasl.bearer import RSA, jwks, signed

CLIENT, SECRET = "broker", "secret-of-broker-51c7"
PATH, KEYS = "/token", "/keys"


class Request(NamedTuple):
    """A client's request."""

    client: str
    secret: str
    form: dict[str, str]


class TokenServer:
    """`fault` is a status, or the body of a response with status 200, instead of a token."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.seconds = 600
        self.fault: int | bytes | None = None
        self.location = ""  # the target of a redirect
        self.requests: list[Request] = []
        self.go_on = threading.Event()  # cleared: no responses
        self.go_on.set()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        self.url, self.keys = (f"{scheme}://127.0.0.1:{self._server.server_port}{path}" for path in (PATH, KEYS))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def token(self, name: str = CLIENT, **claims: Any) -> str:
        """A token with a lifetime of `seconds`."""
        now = int(time.time())
        return signed({"sub": name, "iat": now, "exp": now + self.seconds, "scope": "kafka"} | claims, RSA)

    def close(self) -> None:
        """End the server."""
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)

    def _answer(self, request: Request) -> tuple[int, bytes]:
        self.requests.append(request)
        if isinstance(self.fault, int):
            return self.fault, json.dumps({"error": "invalid_client", "error_description": SECRET}).encode()
        if self.fault is not None:
            return 200, self.fault
        if request[:2] != (CLIENT, SECRET) or request.form.get("grant_type") != "client_credentials":
            return 401, b"{}"
        return 200, json.dumps({"access_token": self.token(), "token_type": "Bearer"}).encode()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(200, jwks(RSA))

            def do_POST(self) -> None:
                form = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
                basic = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
                client, _, secret = basic.partition(":")
                answer = outer._answer(Request(client, secret, form))
                outer.go_on.wait(30)
                self._send(*answer)

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                if outer.location:
                    self.send_header("Location", outer.location)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        return Handler
