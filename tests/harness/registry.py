"""Apicurio Registry with Confluent's REST interface and its schemas in a topic; and a proxy in front of it."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from .java import OPTIONS
from .needs import registry_jar
from .process import free_port
from .serving import serving

HERE = "127.0.0.1"
SECONDS = 300
_PATH = "/apis/ccompat/v7"
_JSON = {"Content-Type": "application/vnd.schemaregistry.v1+json"}


class SchemaRegistry:
    """A context manager over an existing folder. The process dies with the test run; the topic keeps the schemas."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder, self._bootstrap, self.port = folder, bootstrap, free_port()
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"http://{HERE}:{self.port}{_PATH}"

    def __enter__(self) -> SchemaRegistry:
        words = ["java", *OPTIONS, *self._options(), "-jar", str(registry_jar())]
        self._stack.enter_context(serving(words, self._folder / "registry.log", self._is_up, SECONDS))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _options(self) -> list[str]:
        settings = {
            "quarkus.http.host": HERE,
            "quarkus.http.port": str(self.port),
            "apicurio.storage.kind": "kafkasql",
            "apicurio.kafkasql.bootstrap.servers": self._bootstrap,
            "apicurio.storage.snapshot.location": str(self._folder),
            "java.io.tmpdir": str(self._folder),
        }
        return [f"-D{name}={value}" for name, value in settings.items()]

    def _is_up(self) -> bool:
        return isinstance(self.call("GET", "/subjects"), list)

    def register(self, subject: str, schema: Any, **more: Any) -> int:
        """Register a schema as a version of the subject; returns its id."""
        body = {"schema": schema if isinstance(schema, str) else json.dumps(schema), **more}
        found: int = self.call("POST", f"/subjects/{subject}/versions", body)["id"]
        return found

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The response's JSON; AssertionError with it for an error."""
        request = Request(self.url + path, None if body is None else json.dumps(body).encode(), _JSON, method=method)
        try:
            with urlopen(request, timeout=SECONDS) as answer:
                return json.load(answer)
        except HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read()!r}") from None


class Door(ThreadingHTTPServer):
    """Passes requests on to a registry if they name the user, as a proxy does; `asked` has their paths.

    Paths are without the interface's prefix. With a certificate, a PEM file that includes the key, it uses TLS. A
    context manager.
    """

    daemon_threads = True

    def __init__(self, registry: SchemaRegistry, user: str | None = None, certificate: Path | None = None) -> None:
        super().__init__((HERE, 0), _Passing)
        self.registry, self.asked = registry, list[str]()
        self.closed_for = "nothing"  # paths with this prefix get no response
        self.wanted = f"Basic {base64.b64encode(user.encode()).decode()}" if user else None
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.url = f"{'https' if certificate else 'http'}://{HERE}:{self.server_address[1]}{_PATH}"

    def __enter__(self) -> Door:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not trust the certificate closes the connection."""


class _Passing(BaseHTTPRequestHandler):
    server: Door

    def do_GET(self) -> None:
        if self.server.wanted not in (None, self.headers.get("Authorization")):
            self._answer(401, b'{"error_code": 401, "message": "Unauthorized"}')
            return
        path = self.path.removeprefix(_PATH)
        self.server.asked.append(path)
        if path.startswith(self.server.closed_for):
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        behind = http.client.HTTPConnection(HERE, self.server.registry.port, timeout=SECONDS)
        try:
            behind.request(self.command, self.path, body, _JSON if body else {})
            answer = behind.getresponse()
            self._answer(answer.status, answer.read())
        finally:
            behind.close()

    do_POST = do_GET

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Logs nothing."""
