"""Two brokers that get the same requests in the same order; their responses are compared."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from odradek.protocol import interbroker, requests

from ..fuzz.sequences import CORRELATION, Pools, Script, Step
from ..fuzz.valid import is_ours, valid_body
from ..harness.process import readable
from ..harness.wire import decode_body, header, read_exactly
from .compare import Field, errors_in, fields
from .plain import Names, plain, request_class
from .values import Values

SPICES = (0.0, 0.0, 0.02, 0.1)
PROBE = 18  # ApiVersions, sent after a request without a response: if it gets none either, the connection is closed
PLAIN_HEADS = {"ApiVersions"}  # the client does not know the broker's versions yet
WAITS_S = 0.3  # for a request that waits for other clients
ANSWER_S = 20.0
CLIENT_IDS = ("tests", "tests", "", None, "Ωδ", "x" * 300)
SETTLED_S = 3.0  # until both brokers have finished their background work
LEARNT = 4
MEMBER_ID_REQUIRED = 79
NOBODYS = (-1, b"")
Address = tuple[str, int]
UNSETTLED = {3, 5, 14, 15, 16, 51}
"""Errors of resources that do not exist yet or are not ready: the request is repeated while only one broker has one."""
CHANGES = {"CreateTopics", "DeleteTopics", "CreatePartitions", "AlterConfigs", "IncrementalAlterConfigs", "Metadata",
           "EndTxn", "InitProducerId"}  # fmt: skip
"""APIs whose work continues after the response: in Kafka's broker, and with transaction markers in both."""
SPREAD_S = 0.1  # roughly, until a log of Kafka's applies new topic configs
READS = {1, 2, 3, 9, 10, 15, 16, 23, 32, 35, 46, 60, 61, 65, 66, 75}


class Difference(NamedTuple):
    """Different responses of two brokers ("none": no response, "closed": the connection is closed) to `request`.

    `produced`: the former Produce requests.
    """

    step: Step
    ours: Any
    theirs: Any
    before: list[tuple[Step, Any]]
    body: bytes
    produced: Sequence[tuple[Step, bytes]] = ()

    @property
    def request(self) -> Any:
        """The request to our broker."""
        return decoded(self.step, self.body)

    @property
    def is_whole(self) -> bool:
        """Whether the request can be decoded."""
        try:
            return self.request is not None
        except (ValueError, IndexError, struct.error):
            return False

    @property
    def fields(self) -> list[Field]:
        """The differing fields."""
        return fields(self.ours, self.theirs)

    def __str__(self) -> str:
        return "\n    ".join([str(self.step), *map(str, self.fields)])


def decoded(step: Step, body: bytes) -> Any:
    """The request of a step."""
    return requests.decode(request_class(step.api), step.version, memoryview(body))


class Played(NamedTuple):
    """The result of a sequence: equal responses, differences after which it continued, and the one that ended it."""

    alike: int
    passed: Sequence[Difference]
    last: Difference | None


class _Sent(NamedTuple):
    """A request that was sent."""

    sock: socket.socket
    step: Step
    silent: bool
    body: bytes


class Client:
    """A client of one broker: its connection, and values from responses."""

    def __init__(
        self, address: Address, pools: Pools, learns: Mapping[str, Sequence[str]], names: Names, client_id: str | None
    ) -> None:  # fmt: skip
        self._address = address
        self._client_id = client_id
        self._pools: dict[str, Any] = {k: v if isinstance(v, tuple) else list(v) for k, v in pools.items()}
        self._learns = learns
        self._names = names
        self._sock: socket.socket | None = None
        self._sequences: dict[Any, int] = {}
        self._frame = b""
        self.body = b""  # of the last request
        self._asked: Any = None
        self._session = 0
        self._answer: Any = None
        self.parked: list[_Sent] = []

    def send(self, step: Step) -> None:
        """Send the request of a step."""
        if self._sock is None:
            self._sock = socket.create_connection(self._address, 30)
        rng = random.Random(step.seed)
        request = request_class(step.api)
        values = Values(rng, self._pools, rng.choice(SPICES), step.api, step.version, self._sequences)
        flexible = request.flexible_version_q(step.version)
        body = values.cut(valid_body(request, step.version, values))
        silent = request.API_KEY == 0 and _acks(step.version, body) == 0
        self.body = body
        head = header(request.API_KEY, step.version, CORRELATION, flexible=flexible, client=self._client_id)
        self._frame = _framed(head + body)
        if silent:
            self._frame += _framed(header(PROBE, 0, CORRELATION))
        self._asked = _Sent(self._sock, step, silent, body)
        self._sock.sendall(self._frame)

    def again(self) -> None:
        """Send the last request again."""
        assert self._sock is not None
        self._sock.sendall(self._frame)

    def park(self) -> None:
        """Leave the last request pending; the next one uses another connection."""
        self.parked.append(self._asked)
        self._sock = None

    def take_parked(self, place: int, seconds: float) -> Any:
        """As `take`, for a pending request."""
        asked = self.parked[place]
        answer = self._taken(asked, seconds)
        if answer != "none":
            del self.parked[place]
            asked.sock.close()
        return answer

    def take(self, seconds: float) -> Any:
        """The response in comparable form; "none" without a response, "closed" if the connection ends."""
        answer = self._taken(self._asked, seconds)
        if answer == "closed":
            self.close()
        return answer

    def _taken(self, asked: _Sent, seconds: float) -> Any:
        asked.sock.settimeout(seconds)
        try:
            frame = read_exactly(asked.sock, struct.unpack(">i", read_exactly(asked.sock, 4))[0])
        except TimeoutError:
            return "none"
        except (EOFError, ConnectionError):
            return "closed"
        if asked.silent:
            return "silent"
        self._answer = _response(asked.step, frame)
        return plain(self._answer, self._names)

    def learn(self, answer: Any = None) -> None:
        """Remember values of the last response for fields of later requests."""
        answer = self._answer if answer is None else answer
        if getattr(answer, "error_code", 0) not in (0, MEMBER_ID_REQUIRED) or self._names.others(answer):
            return
        for name in getattr(type(answer), "__slots__", ()):
            value = getattr(answer, name, None)
            if name == "members":
                for member in sorted(value or (), key=lambda member: str(member.member_id)):  # by their client ids
                    self._note("assignments.member_id", member.member_id.encode())
            elif isinstance(value, list):
                for each in value:
                    self.learn(each)
            elif name in self._learns and value is not None:
                for field in self._learns[name]:
                    self._note(field, value.encode() if isinstance(value, str) else value)
                if name == "session_id":
                    self._next_epoch(value)

    def _next_epoch(self, session: int) -> None:
        """The next epoch of a Fetch session that continues."""
        known = self._pools["session_epoch"]
        at = known[-1] + 1 if session == self._session and session else 1
        self._session = session
        self._note("session_epoch", at if session else 0)

    def _note(self, name: str, value: Any) -> None:
        """Append the value: the last entry is the newest."""
        known = self._pools.setdefault(name, [])
        if isinstance(known, tuple) or (value in known and value in NOBODYS):
            return
        if value in known:
            known.remove(value)
        known.append(value)
        if len(known) > LEARNT:
            del known[0]

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def end(self) -> None:
        """Close all connections."""
        self.close()
        for asked in self.parked:
            asked.sock.close()


def _response(step: Step, frame: bytes) -> Any:
    """The decoded response, with its header."""
    kind = interbroker.message_class(step.api + "Response")
    if is_ours(kind):
        return interbroker.response(step.api, step.version, frame)[1]
    flexible = kind.flexible_version_q(step.version) and step.api not in PLAIN_HEADS
    return decode_body(kind, step.version, frame[5 if flexible else 4 :])


def _framed(request: bytes) -> bytes:
    return struct.pack(">i", len(request)) + request


def _acks(version: int, body: bytes) -> int:
    """A Produce request's acks, after the transactional id (v3+); 1 if the body is cut before."""
    if len(body) < 2:
        return 1
    at = 0
    if version >= 9:
        at = max(1, body[0]) if body[0] < 0x80 else -1
    elif version >= 3:
        (size,) = struct.unpack_from(">h", body)
        at = 2 + max(0, size)
    return int(struct.unpack_from(">h", body, at)[0]) if 0 <= at <= len(body) - 2 else 1


class Pair:
    """Our broker and Apache Kafka's."""

    def __init__(
        self, ours: Address, theirs: Address, learns: Mapping[str, Sequence[str]],
        waiting: frozenset[str], passes: Callable[[Difference], bool],
    ) -> None:  # fmt: skip
        """`waiting`: APIs whose requests may wait for others. A sequence continues after a difference that `passes`."""
        self._addresses = ours, theirs
        self._passes = passes
        self._learns = learns
        self._waiting = waiting

    def play(
        self, played: Script, pools: tuple[Pools, Pools], suffix: str, settled: Callable[[], None]
    ) -> Played:  # fmt: skip
        """Send all steps, up to the first difference that does not pass, after which responses are not comparable."""
        names = Names(pools[0]["topic_id"], suffix), Names(pools[1]["topic_id"], suffix)
        rng = random.Random(played.name)
        clients = [self._both(own, pools, names, rng.choice(CLIENT_IDS)) for own in played.clients]
        before: list[tuple[Step, Any]] = []
        produced: list[tuple[Step, bytes]] = []
        passed: list[Difference] = []
        try:
            for step in played.steps:
                if (late := self._late(clients, before)) is not None:
                    return Played(len(before), passed, late)
                ours, theirs = self._step(clients[step.client], step)
                body = clients[step.client][0].body
                if fields(ours, theirs):
                    difference = Difference(step, ours, theirs, before, body, tuple(produced))
                    if not self._passes(difference):
                        return Played(len(before), passed, difference)
                    passed.append(difference)
                else:
                    before.append((step, ours))
                if step.api == "Produce" and isinstance(ours, dict):
                    produced.append((step, body))
                if step.api == "Produce" and ours == "closed":
                    break  # without a response it is unknown which records were stored before the fault
                if step.api in CHANGES:
                    time.sleep(SPREAD_S)
                    settled()
            return Played(len(before), passed, self._late(clients, before))
        finally:
            for pair in clients:
                for client in pair:
                    client.end()

    def _both(
        self, own: Pools, pools: tuple[Pools, Pools], names: tuple[Names, Names], client_id: str | None
    ) -> list[Client]:  # fmt: skip
        """A client for each broker, with the same name."""
        both = zip(self._addresses, pools, names, strict=True)
        return [Client(address, {**common, **own}, self._learns, of, client_id) for address, common, of in both]

    def _late(self, clients: list[list[Client]], before: list[tuple[Step, Any]]) -> Difference | None:
        """The first difference among the responses that pending requests have got since."""
        for pair in clients:
            for place in reversed(range(len(pair[0].parked))):
                asked = [client.parked[place] for client in pair]
                if not any(readable(one.sock, 0) for one in asked):
                    continue
                ours, theirs = (client.take_parked(place, ANSWER_S / 4) for client in pair)
                step = asked[0].step
                if fields(ours, theirs):
                    return Difference(step, ours, theirs, before, asked[0].body)
                before.append((step, ours))
                for client in pair:
                    client.learn()
        return None

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
            ours = pair[0].take(ANSWER_S) if late[0] else ours
            theirs = pair[1].take(ANSWER_S) if late[1] else theirs
        if "closed" in (ours, theirs):
            for client in pair:
                client.close()
        for client, answer in zip(pair, (ours, theirs), strict=True):
            if ours == theirs == "none":
                client.park()
            elif isinstance(answer, dict):
                client.learn()
        return ours, theirs

    def _answers(self, pair: list[Client], step: Step) -> tuple[Any, Any]:
        if step.api not in self._waiting:
            return pair[0].take(ANSWER_S), pair[1].take(ANSWER_S)
        first = pair[1].take(WAITS_S)  # Kafka is the slower one
        second = pair[0].take(WAITS_S if first == "none" else ANSWER_S / 4)
        return second, first if first != "none" or second == "none" else pair[1].take(ANSWER_S / 4)

    def _unsettled(self, step: Step, ours: Any, theirs: Any) -> tuple[bool, bool]:
        """For each of the two brokers, whether its request must be repeated."""
        if "closed" in (ours, theirs) or "none" in (ours, theirs):
            return False, False
        if request_class(step.api).API_KEY in READS:
            return True, True
        first, second = errors_in(ours), errors_in(theirs)
        return bool((first - second) & UNSETTLED), bool((second - first) & UNSETTLED)
