"""The keys of bearer tokens, from a file or from a server that may fail."""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.security.sasl.jwks import Jwks
from odradek.security.sasl.sasl_settings import SaslSettingError
from odradek.workers.authentication.key_fetcher import KEY, KeyFetcher

from ...harness.process import wait_until
from ...security.sasl.bearer import EC, RSA, jwks

NOW = 1_700_000_000_000


def names(keys: Jwks) -> list[str]:
    return [key.kid for key in keys.candidates(None, 0)]


def test_changed_key_file_is_read_again(tmp_path: Path) -> None:
    path, keys = tmp_path / "key set.json", Jwks(0)
    path.write_bytes(jwks(RSA))
    fetcher = KeyFetcher(keys, path.as_uri())
    fetcher.read_file()
    assert names(keys) == ["rsa"]
    for content, found in ((jwks(RSA, EC), ["rsa", "ec"]), (b"{", ["rsa", "ec"]), (jwks(EC), ["ec"])):
        new = tmp_path / "new"
        new.write_bytes(content)
        os.replace(new, path)
        fetcher.poll(NOW)
        assert names(keys) == found
    path.unlink()
    fetcher.poll(NOW)
    assert names(keys) == ["ec"]


@pytest.mark.parametrize("content", [None, b"", b"[]", b'{"keys": 1}'])
def test_invalid_key_file_is_refused_at_the_start(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SaslSettingError, match=KEY):
        KeyFetcher(Jwks(0), path.as_uri()).read_file()


class Server:
    """Answers with `content`, or an error, as soon as `released` is set."""

    def __init__(self) -> None:
        self.content: bytes | None = jwks(RSA)
        self.asked = 0
        self.released = threading.Event()
        self.released.set()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                if not outer.released.wait(5):  # less than the client's timeout
                    outer.content = None
                self.send_response(200 if outer.content is not None else 503)
                self.end_headers()
                self.wfile.write(outer.content or b"")

            def log_message(self, *_: Any) -> None: ...

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.server.shutdown()
    made.thread.join()
    made.server.server_close()


def poll(fetcher: KeyFetcher, now_ms: int) -> None:
    """Poll until one fetch has ended."""
    fetcher.poll(now_ms)
    wait_until(lambda: fetcher._fetch._thread is None or not fetcher._fetch._thread.is_alive())
    fetcher.poll(now_ms)


def test_poll_does_not_wait_for_the_key_server(server: Server) -> None:
    """The server answers only after two polls have returned."""
    keys = Jwks(3600_000)
    fetcher = KeyFetcher(keys, server.url)
    server.released.clear()
    fetcher.poll(NOW)
    wait_until(lambda: server.asked, what="the request")
    fetcher.poll(NOW)
    assert (names(keys), server.content) == ([], jwks(RSA))
    server.released.set()
    poll(fetcher, NOW)
    assert (names(keys), server.asked) == (["rsa"], 1)


def test_fetched_keys_are_refreshed(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    keys = Jwks(3600_000, 100, 10_000)
    fetcher = KeyFetcher(keys, server.url)
    fetcher.read_file()
    assert server.asked == 0
    poll(fetcher, NOW)
    assert names(keys) == ["rsa"]
    poll(fetcher, NOW + 1000)
    assert server.asked == 1, "the keys are fresh"
    server.content = None
    poll(fetcher, NOW + 3600_001)
    assert names(keys) == ["rsa"]
    assert KEY in caplog.text
    server.content = jwks(EC)
    poll(fetcher, NOW + 3600_002)
    assert names(keys) == ["rsa"], "the next attempt waits"
    poll(fetcher, NOW + 3600_200)
    assert names(keys) == ["ec"]


def test_refused_connection_to_the_key_server_is_logged(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    keys = Jwks()
    fetcher = KeyFetcher(keys, "http://127.0.0.1:1/keys")
    poll(fetcher, NOW)
    assert names(keys) == []
    assert "refused" in caplog.text
