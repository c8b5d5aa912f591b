"""Two brokers that are asked the same, one request after the other, and compared by what they answer."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from odradek.protocol import interbroker, requests

from ..fuzz.sequences import CORRELATION, Pools, Script, Step
from ..fuzz.valid import valid_body
from ..harness.wire import decode_body, header
from .compare import Field, errors_in, fields
from .plain import Names, plain, request_class
from .values import Values

SPICES = (0.0, 0.0, 0.02, 0.1)
PROBE = 18  # ApiVersions, sent behind a request that gets no answer: the connection ended if it gets none either
WAITS_S = 0.3  # for a request that waits for other clients
ANSWER_S = 20.0
SETTLED_S = 3.0  # until both are through with what they do in the background
LEARNT = 4
Address = tuple[str, int]
UNSETTLED = {3, 5, 14, 15, 16, 51}
"""Errors of what is not there yet, or not through yet: a request is sent once more while only one broker has one."""
READS = {1, 2, 3, 9, 10, 15, 16, 23, 32, 35, 46, 60, 61, 65, 66, 75}


class Difference(NamedTuple):
    """What two brokers do not answer alike ("none": no answer, "closed": no connection any more) to `request`."""

    step: Step
    ours: Any
    theirs: Any
    before: list[tuple[Step, Any]]
    body: bytes

    @property
    def request(self) -> Any:
        """What our broker was sent."""
        return requests.decode(request_class(self.step.api), self.step.version, memoryview(self.body))

    @property
    def fields(self) -> list[Field]:
        """The fields that differ."""
        return fields(self.ours, self.theirs)

    def __str__(self) -> str:
        return "\n    ".join([str(self.step), *map(str, self.fields)])


class Client:
    """One client at one broker: a connection, and what it knows."""

    def __init__(self, address: Address, pools: Pools, learns: Mapping[str, Sequence[str]], names: Names) -> None:
        self._address = address
        self._pools: dict[str, Any] = {k: v if isinstance(v, tuple) else list(v) for k, v in pools.items()}
        self._learns = learns
        self._names = names
        self._sock: socket.socket | None = None
        self._sequences: dict[Any, int] = {}
        self._frame = b""
        self.body = b""  # of the last request
        self._silent = False
        self._answer: Any = None

    def send(self, step: Step) -> None:
        """Send the request of a step."""
        if self._sock is None:
            self._sock = socket.create_connection(self._address, 30)
        dice = random.Random(step.seed)
        request = request_class(step.api)
        values = Values(dice, self._pools, dice.choice(SPICES), step.version, self._sequences)
        flexible = request.flexible_version_q(step.version)
        body = valid_body(request, step.version, values)
        self._silent = request.API_KEY == 0 and _acks(step.version, body) == 0
        self.body = body
        self._frame = _framed(header(request.API_KEY, step.version, CORRELATION, flexible=flexible) + body)
        if self._silent:
            self._frame += _framed(header(PROBE, 0, CORRELATION))
        self._sock.sendall(self._frame)

    def again(self) -> None:
        """Send the last request once more."""
        assert self._sock is not None
        self._sock.sendall(self._frame)

    def take(self, step: Step, seconds: float) -> Any:
        """The answer, comparable; "none" where none comes, "closed" where the connection ends."""
        assert self._sock is not None
        self._sock.settimeout(seconds)
        try:
            frame = self._read(struct.unpack(">i", self._read(4))[0])
        except TimeoutError:
            return "none"
        except (EOFError, ConnectionError):
            self.close()
            return "closed"
        if self._silent:
            return "silent"
        response = interbroker.message_class(step.api + "Response")
        head = 5 if response.flexible_version_q(step.version) else 4
        self._answer = decode_body(response, step.version, frame[head:])
        return plain(self._answer, self._names)

    def _read(self, count: int) -> bytes:
        parts = []
        while count:
            part = self._sock.recv(min(count, 1 << 18))  # type: ignore[union-attr]
            if not part:
                raise EOFError
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def learn(self, answer: Any = None) -> None:
        """Remember what the last answer says in fields whose names are to be learnt."""
        answer = self._answer if answer is None else answer
        for name in getattr(type(answer), "__slots__", ()):
            value = getattr(answer, name, None)
            if isinstance(value, list):
                for each in value:
                    self.learn(each)
            elif name in self._learns and value is not None:
                for field in self._learns[name]:
                    self._note(field, value.encode() if isinstance(value, str) else value)

    def _note(self, name: str, value: Any) -> None:
        known = self._pools.setdefault(name, [])
        if isinstance(known, tuple) or value in known:
            return
        known.append(value)
        if len(known) > LEARNT:
            del known[0]

    def close(self) -> None:
        """Close the connection; the next request gets a new one."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None


def _framed(request: bytes) -> bytes:
    return struct.pack(">i", len(request)) + request


def _acks(version: int, body: bytes) -> int:
    """A Produce request's acks, behind the transactional id (v3+)."""
    at = 0
    if version >= 9:
        at = max(1, body[0]) if body[0] < 0x80 else -1
    elif version >= 3:
        (size,) = struct.unpack_from(">h", body)
        at = 2 + max(0, size)
    return int(struct.unpack_from(">h", body, at)[0]) if at >= 0 else 1


class Pair:
    """Our broker and theirs."""

    def __init__(
        self, ours: Address, theirs: Address, learns: Mapping[str, Sequence[str]],
        waiting: frozenset[str],
    ) -> None:  # fmt: skip
        self._addresses = ours, theirs
        self._learns = learns
        self._waiting = waiting

    def play(self, played: Script, pools: tuple[Pools, Pools]) -> tuple[int, Difference | None]:
        """How many answers were alike, and the first difference; what comes after that says nothing."""
        names = Names(pools[0]["topic_id"]), Names(pools[1]["topic_id"])
        clients = [
            [Client(a, {**p, **own}, self._learns, n) for a, p, n in zip(self._addresses, pools, names, strict=True)]
            for own in played.clients
        ]
        before: list[tuple[Step, Any]] = []
        try:
            for step in played.steps:
                ours, theirs = self._step(clients[step.client], step)
                if fields(ours, theirs):
                    return len(before), Difference(step, ours, theirs, before, clients[step.client][0].body)
                before.append((step, ours))
            return len(before), None
        finally:
            for pair in clients:
                for client in pair:
                    client.close()

    def _step(self, pair: list[Client], step: Step) -> tuple[Any, Any]:
        for client in pair:
            client.send(step)
        ours, theirs = self._answers(pair, step)
        deadline = time.monotonic() + SETTLED_S
        while fields(ours, theirs) and time.monotonic() < deadline:
            late = self._unsettled(step, ours, theirs)
            if not any(late):
                break
            time.sleep(0.02)
            for client, is_late in zip(pair, late, strict=True):
                if is_late:
                    client.again()
            ours = pair[0].take(step, ANSWER_S) if late[0] else ours
            theirs = pair[1].take(step, ANSWER_S) if late[1] else theirs
        for client, answer in zip(pair, (ours, theirs), strict=True):
            if answer == "none":
                client.close()
            elif isinstance(answer, dict):
                client.learn()
        return ours, theirs

    def _answers(self, pair: list[Client], step: Step) -> tuple[Any, Any]:
        if step.api not in self._waiting:
            return pair[0].take(step, ANSWER_S), pair[1].take(step, ANSWER_S)
        first = pair[1].take(step, WAITS_S)  # Kafka is the slower one
        second = pair[0].take(step, WAITS_S if first == "none" else ANSWER_S / 4)
        return second, first if first != "none" or second == "none" else pair[1].take(step, ANSWER_S / 4)

    def _unsettled(self, step: Step, ours: Any, theirs: Any) -> tuple[bool, bool]:
        """Which of the two is to be asked once more."""
        if "closed" in (ours, theirs) or "none" in (ours, theirs):
            return False, False
        if request_class(step.api).API_KEY in READS:
            return True, True
        first, second = errors_in(ours), errors_in(theirs)
        return bool((first - second) & UNSETTLED), bool((second - first) & UNSETTLED)
