"""Who sends a request: what is kept of a login, and who needs a place for one."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from odradek.broker.config import resolve
from odradek.broker.exporter.access import readers
from odradek.broker.exporter.access.attempts import MOST_OF_ONE
from odradek.broker.exporter.access.live_security import LiveSecurity
from odradek.broker.exporter.access.passwords import Passwords
from odradek.broker.exporter.access.reader import Reader
from odradek.broker.exporter.access.readers import Readers
from odradek.broker.exporter.access.refused import LoginNeeded, TooManyLogins, UsersUnknown
from odradek.cluster.metadata.snapshot import Snapshot, raw_snapshot
from odradek.ipc.shm import Shared
from odradek.security.sasl.password import Password
from odradek.security.sasl.plain import PlainServer
from odradek.security.sasl.sasl_settings import Credentials
from odradek.workers.dispatch.authorization import EVERYTHING, Rights


class Security:
    """Users of PLAIN, and no ACLs: what LiveSecurity has of a broker."""

    def __init__(self) -> None:
        self.users = {"alice": "right", "bob": "right"}
        self.generation, self.stale, self.is_known = 1, False, True

    def change(self, **users: str) -> None:
        self.users = users
        self.generation += 1

    def follow(self, *_: object) -> None:
        pass

    def passwords(self) -> Passwords:
        server = PlainServer({name: Password(text) for name, text in self.users.items()})
        return Passwords({"PLAIN": 1}, server, Credentials(lambda mechanism, user: None))

    def rights(self, principal: str, host: str) -> Rights:
        return EVERYTHING


class Peer:
    """The transport of a connection."""

    def get_extra_info(self, _: str) -> tuple[str, int]:
        return "10.0.0.1", 1


class Request:
    """What of a request says who sends it."""

    def __init__(self, text: str, scheme: str = "Basic") -> None:
        self.headers = {"Authorization": f"{scheme} {base64.b64encode(text.encode()).decode()}"}
        self.transport = Peer()


class Asked:
    """Readers of a broker with such users."""

    def __init__(self) -> None:
        self.security: Any = Security()
        self.readers = Readers(self.security, lambda: None)  # type: ignore[arg-type, return-value]

    async def of(self, text: str, request: Any = None) -> Reader:
        sent: Any = request or Request(text)
        return await self.readers.of(sent)

    async def fill(self) -> list[asyncio.Task[Reader]]:
        """Take all places of the address, until the tasks are cancelled."""
        guesses = [asyncio.create_task(self.of(f"alice:wrong-{number}")) for number in range(MOST_OF_ONE)]
        while not self.is_full:
            await asyncio.sleep(0)
        return guesses

    @property
    def is_full(self) -> bool:
        return len(self.readers._checks) == MOST_OF_ONE


def run(test: Callable[[Asked], Awaitable[None]]) -> None:
    async def body() -> None:
        asked = Asked()
        try:
            await test(asked)
        finally:
            asked.readers.close()

    asyncio.run(asyncio.wait_for(body(), 60))


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Failures keep their places for the whole test."""
    monkeypatch.setattr(readers, "FAILED_S", 600.0)
    yield


@pytest.mark.usefixtures("late")
def test_a_reader_who_has_logged_in_needs_no_place_once_users_change() -> None:
    async def test(asked: Asked) -> None:
        assert (await asked.of("alice:right")).user == "User:alice"
        await asked.fill()
        asked.security.change(alice="right")
        assert (await asked.of("alice:right")).user == "User:alice"
        with pytest.raises(TooManyLogins):
            await asked.of("bob:right")

    run(test)


def test_a_reader_whose_password_has_changed_needs_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "FAILED_S", 0.0)

    async def test(asked: Asked) -> None:
        await asked.of("alice:right")
        asked.security.change(alice="another")
        with pytest.raises(LoginNeeded):
            await asked.of("alice:right")
        monkeypatch.setattr(readers, "FAILED_S", 600.0)
        await asked.fill()
        with pytest.raises(TooManyLogins):
            await asked.of("alice:right")

    run(test)


def test_nobody_is_a_reader_before_users_are_known() -> None:
    async def test(asked: Asked) -> None:
        asked.security.is_known = False
        with pytest.raises(UsersUnknown, match="not known yet: wait") as refused:
            await asked.of("alice:right")
        assert refused.value.status == 503
        asked.security.is_known = True
        assert (await asked.of("alice:right")).user == "User:alice"

    run(test)


def test_users_are_known_with_the_metadata_and_the_snapshot(shared: Shared) -> None:
    config = resolve({"log.dirs": "data"})
    live, empty = LiveSecurity(config, shared.security), Snapshot.empty(config)
    live.follow(empty, 0.0)
    assert not live.is_known
    shared.security.publish(1, b"{}")
    live.follow(empty, 0.0)
    assert not live.is_known
    live.follow(Snapshot(raw_snapshot(1, "cluster", 0, [], {}, {})), 0.0)
    assert live.is_known


def test_a_connection_is_a_readers_once_it_has_logged_in() -> None:
    async def test(asked: Asked) -> None:
        request: Any = Request("alice:right")
        assert not asked.readers.has_logged_in(request.transport)
        await asked.of("", request)
        assert asked.readers.has_logged_in(request.transport)

    run(test)


@pytest.mark.usefixtures("late")
def test_a_login_is_the_same_in_each_form_of_its_header() -> None:
    async def test(asked: Asked) -> None:
        await asked.of("alice:right")
        await asked.fill()
        assert (await asked.of("", Request("alice:right", "BASIC "))).user == "User:alice"

    run(test)
