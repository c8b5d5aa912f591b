"""A document from a URL, for callers that may block: bounded in size and in time, whatever the server does.

For the keys that sign bearer tokens (sasl.oauthbearer.jwks.endpoint.url) and for bearer tokens of brokers, each in a
thread of its own, and for bearer tokens of commands. Redirects stay within their scheme: https never ends in plain http
or a local file. What is posted follows none: it has secrets, which are for one server.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from odradek.security.tls import handshake

MOST = 1 << 20  # bytes
WHOLE_S = 20.0
SILENCE_S = 10.0
_CHUNK = 1 << 14
_REDIRECTS = 3


def fetch(
    url: str, *, context: ssl.SSLContext | None = None, data: bytes | None = None,
    headers: Mapping[str, str] = {}, most: int = MOST, whole_s: float = WHOLE_S, connect_s: float = SILENCE_S,
    read_s: float = SILENCE_S, redirects: bool = True, proxies: bool = True,
) -> bytes:  # fmt: skip
    """The document at a file:, http: or https: URL; `data` is posted. OSError says what failed; see HttpStatus.

    Without `redirects` one is an HttpStatus. Without `proxies` those of the environment are not used.
    """
    if urlsplit(url).scheme == "file":
        with open(unquote(urlsplit(url).path), "rb") as file:
            return _bounded(file.read(most + 1), most)
    deadline = _Deadline(whole_s)
    request = urllib.request.Request(url, data, dict(headers))
    following = _Redirects if redirects else _NoRedirects
    direct = () if proxies else (urllib.request.ProxyHandler({}),)
    opener = urllib.request.build_opener(following, *direct, *_handlers(context, min(read_s, whole_s), deadline.bound))
    try:
        with deadline:
            return _answer(opener, request, min(connect_s, whole_s), most)
    except http.client.HTTPException as error:
        raise OSError(f"the server at {_host(url)} does not speak HTTP: {type(error).__name__}") from None
    except urllib.error.URLError as error:
        raise OSError(f"cannot connect to the server at {_host(url)}: {_why(error.reason)}") from None


def _answer(
    opener: urllib.request.OpenerDirector, request: urllib.request.Request, connect_s: float, most: int
) -> bytes:  # fmt: skip
    try:
        with opener.open(request, timeout=connect_s) as response:
            return _read(response, most)
    except urllib.error.HTTPError as error:
        raise HttpStatus(_host(request.full_url), error.code, _refusal(error)) from None


def _why(error: object) -> str:
    if isinstance(error, ssl.SSLError):
        return handshake.reason(error)
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


class HttpStatus(OSError):
    """The server refuses; `body` is the first part of what it says, for those who know its form."""

    def __init__(self, host: str, status: int, body: bytes) -> None:
        super().__init__(f"the server at {host} answers {status}")
        self.status, self.body = status, body


def _refusal(error: urllib.error.HTTPError) -> bytes:
    with error:
        try:
            return error.read(_CHUNK)
        except (OSError, http.client.HTTPException):
            return b""


def _handlers(
    context: ssl.SSLContext | None, read_s: float, connected: Callable[[socket.socket], None]
) -> tuple[urllib.request.BaseHandler, ...]:
    """They wait for a connection as long as `open` says, and then for `read_s`; `connected` gets its socket."""

    class Plain(http.client.HTTPConnection):
        def connect(self) -> None:
            _tell_early(self, connected)
            super().connect()
            self.sock.settimeout(read_s)
            connected(self.sock)

    class Secure(http.client.HTTPSConnection):
        def connect(self) -> None:
            _tell_early(self, connected)
            super().connect()
            self.sock.settimeout(read_s)
            connected(self.sock)

    class Http(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Plain, req)

    class Https(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Secure, req, context=context)

    return Http(), Https()


def _tell_early(connection: Any, connected: Callable[[socket.socket], None]) -> None:
    """Have it call `connected` before a proxy answers, for which http.client waits in `connect`, line by line."""
    create = connection._create_connection

    def created(*words: Any) -> socket.socket:
        sock: socket.socket = create(*words)
        connected(sock)
        return sock

    connection._create_connection = created


def _read(response: Any, most: int) -> bytes:
    found = b""
    while chunk := response.read1(_CHUNK):
        found = _bounded(found + chunk, most)
    return found


class _Deadline:
    """Ends a request when its time is over: a server may send byte by byte, each within the timeout of a read."""

    def __init__(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._over = False

    def bound(self, sock: socket.socket) -> None:
        """This is the request's connection from now on."""
        with self._lock:
            self._sock = sock
        if self._over:
            self._end()

    def _end(self) -> None:
        with self._lock, suppress(OSError):
            self._over = True
            if self._sock is not None:
                # As a plain socket: its thread may be in OpenSSL, with a state that SSLSocket.shutdown would take away.
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        """OSError if the time was over before the end, whatever the closed connection led to."""
        self._timer.cancel()
        with self._lock:
            self._sock = None
            if self._over:
                raise OSError("the answer takes too long")


class TooLarge(OSError):
    """The document has more bytes than are wanted."""


def _bounded(data: bytes, most: int) -> bytes:
    if len(data) > most:
        raise TooLarge(f"the answer has more than {most} bytes")
    return data


def _host(url: str) -> str:
    """Without user, password and query, which may be secrets."""
    return urlsplit(url).hostname or "?"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """None: the status is the answer."""


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = _REDIRECTS

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:  # fmt: skip
        if urlsplit(newurl).scheme != urlsplit(req.full_url).scheme:
            raise OSError(f"the server at {_host(req.full_url)} redirects to another scheme")
        if req.data is not None:
            raise OSError(f"the server at {_host(req.full_url)} redirects a request that has secrets")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
