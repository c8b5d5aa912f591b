"""Sequences of valid requests by a few clients that use the ids and epochs of earlier answers, and odd values.

The number and the seed of a `Script` determine its clients and steps. Each step has its own random generator, so that
removing another step does not change it; its request also depends on earlier answers (member ids, epochs).
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from odradek.protocol import interbroker

from ..harness.process import readable
from ..harness.wire import decode_body, header, read_exactly
from .valid import OddValues, is_ours, valid_body

PATIENCE_S = 0.05  # for an answer; a JoinGroup that waits for other members is left waiting
ANSWER_S = 240.0  # for a request that cannot wait for other clients
SPICES = (0.0, 0.02, 0.05, 0.2)
CLIENT_IDS = ("fuzz", "", "Ω" * 999)
CORRELATION = 7
LEARNT = 4  # values of a field that a client remembers

Pools = Mapping[str, Sequence[Any]]


class Step(NamedTuple):
    """One request of one client; `given` pools override those of the client. A `hasty` request is not awaited."""

    client: int
    api: str
    version: int
    seed: str
    given: Mapping[str, Sequence[Any]] = {}
    hasty: bool = False

    def __str__(self) -> str:
        given = {name: values if len(repr(values)) < 100 else "…" for name, values in self.given.items()}
        return f"client {self.client}: {self.api} v{self.version} (rng {self.seed!r}) {given or ''}"


class Api(NamedTuple):
    """A request that scripts use: `weight` is its frequency, `waits` whether it may wait for other clients."""

    name: str
    versions: tuple[int, int]
    weight: int = 1
    waits: bool = False


class Script(NamedTuple):
    """Clients, each with its own pools besides the common ones, and their steps."""

    name: str
    clients: list[Pools]
    steps: list[Step]

    def __str__(self) -> str:
        return "\n".join([f"script {self.name}:", *map(str, self.steps)])


def script(name: str, apis: list[Api], clients: list[Pools], length: int) -> Script:
    """The script of this name, of at most `length` steps."""
    rng = random.Random(name)
    weights = [api.weight for api in apis]
    steps = []
    for number in range(rng.randrange(1, length + 1)):
        api = rng.choices(apis, weights)[0]
        version = rng.randint(*api.versions)
        steps.append(Step(rng.randrange(len(clients)), api.name, version, f"{name}/{number}"))
    return Script(name, clients, steps)


class Player:
    """Plays scripts against one broker. `learns`: fields of answers, and the request fields that then use their values.

    All clients of a script share the values of fields in `shared`.
    """

    def __init__(
        self, address: tuple[str, int], pools: Pools, apis: Iterable[Api], learns: Mapping[str, Sequence[str]],
        shared: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._address = address
        self._pools = pools
        self._patience = {api.name: PATIENCE_S if api.waits else ANSWER_S for api in apis}
        self._learns = learns
        self._shared = shared

    def play(self, played: Script) -> int:
        """Send all steps; returns the number of answers. AssertionError for an answer that cannot be decoded."""
        shared: dict[str, list[Any]] = {name: [] for name in self._shared}
        clients = [_Client(self._address, {**self._pools, **pools}, self._learns, shared) for pools in played.clients]
        try:
            for step in played.steps:
                clients[step.client].send(step, 0 if step.hasty else self._patience[step.api])
            return sum(client.answers for client in clients)
        finally:
            for client in clients:
                client.close()


class _Asked(NamedTuple):
    sock: socket.socket
    step: Step


class _Client:
    """One client: its connection, connections with delayed answers, and the values that it has learnt."""

    def __init__(
        self, address: tuple[str, int], pools: Pools, learns: Mapping[str, Sequence[str]], shared: dict[str, list[Any]]
    ) -> None:
        self._address = address
        own = {name: values if isinstance(values, tuple) else list(values) for name, values in pools.items()}
        self._pools: dict[str, Any] = {**own, **shared}
        self._learns = learns
        self._sock: socket.socket | None = None
        self._waiting: list[_Asked] = []
        self.answers = 0

    def send(self, step: Step, patience_s: float) -> None:
        """Send one step; a later step reads an answer that is delayed."""
        self._take_late()
        if self._sock is None:
            self._sock = socket.create_connection(self._address, 30)
        asked = _Asked(self._sock, step)
        try:
            self._sock.sendall(self._frame(step))
            if not readable(self._sock, patience_s):
                assert patience_s < ANSWER_S, f"no answer to {step}"
                self._waiting.append(asked)
                self._sock = None
                return
            self._take(asked)
        except (EOFError, ConnectionError):  # the broker closed the connection; `Watch` checks the broker
            asked.sock.close()
            self._sock = None

    def _take_late(self) -> None:
        for asked in list(self._waiting):
            if readable(asked.sock, 0):
                self._waiting.remove(asked)
                with suppress(EOFError, ConnectionError):
                    self._take(asked)
                asked.sock.close()

    def _frame(self, step: Step) -> bytes:
        rng = random.Random(step.seed)
        request = interbroker.message_class(step.api + "Request")
        values = OddValues(rng, {**self._pools, **step.given}, rng.choice(SPICES))
        flexible = request.flexible_version_q(step.version)
        head = header(request.API_KEY, step.version, CORRELATION, flexible=flexible, client=rng.choice(CLIENT_IDS))
        frame = head + valid_body(request, step.version, values)
        return struct.pack(">i", len(frame)) + frame

    def _take(self, asked: _Asked) -> None:
        frame = read_exactly(asked.sock, struct.unpack(">i", read_exactly(asked.sock, 4))[0])
        self._learn(_decoded(asked.step, frame))
        self.answers += 1

    def _learn(self, answer: Any) -> None:
        """Remember the values of those fields of the answer that are in `learns`."""
        for name in getattr(type(answer), "__slots__", ()):
            value = getattr(answer, name, None)
            if isinstance(value, list):
                for each in value:
                    self._learn(each)
            elif name in self._learns and value is not None:
                for field in self._learns[name]:
                    self._note(field, value.encode() if isinstance(value, str) else value)

    def _note(self, name: str, value: Any) -> None:
        known = self._pools.setdefault(name, [])
        if isinstance(known, tuple):
            return
        if value not in known:
            known.append(value)
        if len(known) > LEARNT:
            del known[0]

    def close(self) -> None:
        for sock in [self._sock, *[asked.sock for asked in self._waiting]]:
            if sock is not None:
                sock.close()


def _decoded(step: Step, frame: bytes) -> Any:
    """The decoded answer, which must match this step and end where the frame ends."""
    kind = interbroker.message_class(step.api + "Response")
    assert struct.unpack_from(">i", frame) == (CORRELATION,), step
    if is_ours(kind):
        return interbroker.response(step.api, step.version, frame)[1]
    return decode_body(kind, step.version, frame[5 if kind.flexible_version_q(step.version) else 4 :])
