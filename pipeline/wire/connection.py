"""One connection to one broker, with kafka-python's messages, TLS and SASL.

kafka-python's own connections read 4 KiB at a time on a separate thread: half a GB of batches per second of CPU, where
this one reads four. It blocks, and reads a response into a buffer that it reuses, because a copy from warm memory costs
less than fresh pages. Requests may be pipelined: `post`, then `take` in order.
"""

from __future__ import annotations

import io
import itertools
import socket
import ssl
import struct
import time
from collections import deque
from typing import Any

from kafka.errors import IncompatibleBrokerVersion, for_code
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.wire import fetch_response
from odradek.pipeline.wire.settings import MOST_FETCHED, Address, Settings

_SIZE = struct.Struct(">i")
_FETCH = 1  # the API key
_MOST = 2 * MOST_FETCHED  # no response is so large, but a TLS server's alert read as a size is


class Connection:
    """An open connection. OSError when it is lost or late; after that only `close` is allowed.

    With a quota the broker responds at once and says for how long it reads nothing more (throttle_time_ms, KIP-219):
    `post` waits for that time. Brokers before 2.0 have already waited, so there the pause is double, which does no
    harm.
    """

    def __init__(self, address: Address, settings: Settings, muted_until: float = 0) -> None:
        """Connect. PipelineError when the broker rejects the login, which a retry would not change."""
        self.address = address
        self.muted_until = muted_until  # monotonic seconds
        self._settings = settings
        self._asked: deque[Any] = deque()
        self._numbers = itertools.count(1)
        self._buffer = bytearray(1 << 16)
        self._versions = BrokerVersionData(api_versions={18: (0, 0), 17: (1, 1), 36: (0, 1)})
        self._socket = socket.create_connection(address, settings.connect_timeout)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def __str__(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def close(self) -> None:
        """Close it; pending requests get no response."""
        self._socket.close()

    @property
    def muted(self) -> float:
        """For how many more seconds the broker accepts no request."""
        return max(0, self.muted_until - time.monotonic())

    # -- requests

    def call(self, request: Any) -> Any:
        """Send a request of kafka-python's and return its response; no other request may be pending."""
        assert not self._asked
        self.post(request)
        return self.take()

    def post(self, request: Any) -> None:
        """Send a request, at the newest version both sides know; `take` returns the responses in request order."""
        if (muted := self.muted) > 0:  # a sleep of no time would still give up the CPU
            time.sleep(muted)
        try:
            request.API_VERSION = self._versions.api_version(request)
        except IncompatibleBrokerVersion as error:
            raise PipelineError(f"the broker at {self} has an unsupported version: {error}") from None
        request.with_header(correlation_id=next(self._numbers), client_id=self._settings.client_id)
        self._socket.sendall(request.encode(header=True, framed=True))
        self._asked.append(request)

    def take(self) -> Any:
        """The response to the oldest pending request. The records of a Fetch are valid until the next response."""
        request = self._asked.popleft()
        frame = self._frame()
        response = request.header.get_response_class()
        head = io.BytesIO(frame[:16])  # a correlation id, and perhaps a byte for tagged fields
        if response.parse_header(head).correlation_id != request.header.correlation_id:
            raise ConnectionError(f"{self} sent a response to another request")
        try:
            answer = _decoded(response, request, frame[head.tell() :])
        except (ValueError, IndexError, struct.error) as error:
            raise ConnectionError(f"{self} sent a response that cannot be decoded: {error}") from None
        self._heed(getattr(answer, "throttle_time_ms", None) or 0)
        return answer

    def _heed(self, throttle_ms: int) -> None:
        if throttle_ms > 0:
            self.muted_until = max(self.muted_until, time.monotonic() + throttle_ms / 1000)

    def _frame(self) -> memoryview:
        (size,) = _SIZE.unpack(self._read(_SIZE.size))
        if not 0 < size < _MOST:
            raise PipelineError(f"{self} does not speak Kafka's protocol: check kafka.security.protocol for that port")
        return self._read(size)

    def _read(self, size: int) -> memoryview:
        """The next `size` bytes, valid until the next read."""
        if size > len(self._buffer):
            self._buffer = bytearray(size + size // 4)
        wanted, got = memoryview(self._buffer)[:size], 0
        while got < size:
            read = self._socket.recv_into(wanted[got:])
            if not read:
                raise ConnectionError(f"{self} closed the connection")
            got += read
        return wanted

    # -- handshake

    def _prepare(self) -> None:
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        security = self._settings.security
        if security.context:
            self._encrypt(security.context)
        self._socket.settimeout(self._settings.request_timeout)
        answer = self.call(ApiVersionsRequest(version=0))
        versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        if security.mechanism:
            self._introduce(security.mechanism)
        self._versions = BrokerVersionData(api_versions=versions)

    def _encrypt(self, context: ssl.SSLContext) -> None:
        try:
            self._socket = context.wrap_socket(self._socket, server_hostname=self.address[0])
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            raise  # cut off, as by a broker that shuts down
        except ssl.SSLError as error:
            raise PipelineError(f"no TLS with {self}: {error.reason or error}") from None

    def _introduce(self, mechanism: str) -> None:
        """SASL in Kafka's frames (KIP-152)."""
        answer = self.call(SaslHandshakeRequest(mechanism=mechanism))
        if answer.error_code:
            raise PipelineError(
                f"{self} does not support SASL mechanism {mechanism}, only {', '.join(answer.mechanisms)}"
            )
        talk = self._settings.security.sasl(self.address[0])
        while not talk.is_done():
            answer = self.call(SaslAuthenticateRequest(auth_bytes=talk.auth_bytes()))
            if answer.error_code:
                why = answer.error_message or for_code(answer.error_code).__name__
                raise PipelineError(f"{self} refused the authentication: {why}")
            talk.receive(answer.auth_bytes)


def _decoded(response: Any, request: Any, body: memoryview) -> Any:
    if request.API_KEY == _FETCH:
        return fetch_response.decode(body, request.API_VERSION)
    return response.decode(body)
