"""Channels of an owner against a model: who is served, what is answered, and what each hears at the end."""

from __future__ import annotations

import itertools
import select
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.broker.process import open_requests
from odradek.broker.process.request_channels import RequestChannels
from odradek.ipc import channel, forward
from odradek.ipc.channel import Channel
from odradek.ipc.forward import Forwarded

JOIN, COMMIT = 11, 8
SIZES = (0, 10, 300_000)  # bytes; of the largest a socket takes a part
Taken = tuple[Channel, Forwarded]


@pytest.fixture(autouse=True, scope="module")
def long_time() -> Iterator[None]:
    """The owner has time to finish, however slow this machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_requests, "FINISH_S", 3600.0)
        yield


class Sender:
    """A process that sends requests, and what it expects to hear."""

    def __init__(self, path: Path) -> None:
        self.link = channel.connect(path)
        self.sent: list[int] = []  # tokens not served yet
        self.expected: list[tuple[int, int, bytes]] = []  # answers not heard yet
        self.begun: list[int] = []  # tokens that are served and have no answer, but those of JOIN

    def hear(self) -> list[tuple[int, int, bytes]]:
        """All that has arrived."""
        self.link.flush()
        return [forward.decode_reply(message) for message in self.link.receive()]


class Owner(RuleBasedStateMachine):
    """An owner and processes that connect, send, read late, and die."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "owner.sock"
        self.epoll = select.epoll()
        self.channels = RequestChannels(self.epoll, self.path, self.serve, (JOIN,))
        self.tokens = itertools.count(1)
        self.senders: list[Sender] = []
        self.by_token: dict[int, Sender] = {}
        self.begun: list[Taken] = []
        self.ends = False

    def serve(self, link: Channel, request: Forwarded) -> None:
        sender = self.by_token[request.token]
        assert not self.ends
        assert request.token == sender.sent.pop(0)
        if request.api_key != JOIN:
            sender.begun.append(request.token)
        self.channels.begin(link, request)
        self.begun.append((link, request))

    def turn(self) -> None:
        for fd, what in self.epoll.poll(0):
            if self.channels.owns(fd):
                self.channels.event(fd, what)
        self.channels.flush()

    @initialize(late=st.integers(0, 3))
    def opens_early(self, late: int) -> None:
        if late:
            self.opens()

    @precondition(lambda self: not self.channels.is_open and not self.ends)
    @rule()
    def opens(self) -> None:
        self.channels.open()

    @rule(
        who=st.integers(0, 3), key=st.sampled_from((JOIN, COMMIT)), size=st.sampled_from(SIZES), turns=st.integers(0, 3)
    )
    def sends(self, who: int, key: int, size: int, turns: int) -> None:
        sender = self.sender(who)
        token = next(self.tokens)
        sender.sent.append(token)
        self.by_token[token] = sender
        sender.link.send(forward.encode(request_of(token, key, bytes(size))))
        self.looks(turns)

    def sender(self, who: int) -> Sender:
        """That of this number, or one that has just connected."""
        if who >= len(self.senders):
            self.senders.append(Sender(self.path))
        return self.senders[min(who, len(self.senders) - 1)]

    @rule(turns=st.integers(1, 3))
    def looks(self, turns: int) -> None:
        for _ in range(turns):
            self.turn()

    @precondition(lambda self: self.begun)
    @rule(which=st.integers(0, 100), size=st.sampled_from(SIZES))
    def answers(self, which: int, size: int) -> None:
        link, request = self.begun.pop(which % len(self.begun))
        self.channels.answer(link, request, forward.OK, bytes(size))
        sender = self.by_token[request.token]
        sender.expected.append((request.token, forward.OK, bytes(size)))
        if request.token in sender.begun:
            sender.begun.remove(request.token)

    @rule(who=st.integers(0, 3))
    def hears(self, who: int) -> None:
        sender = self.sender(who)
        heard = sender.hear()
        assert heard == sender.expected[: len(heard)]
        del sender.expected[: len(heard)]

    @rule(who=st.integers(0, 3))
    def dies(self, who: int) -> None:
        sender = self.sender(who)
        self.senders.remove(sender)
        sender.link.close()

    @precondition(lambda self: not self.ends)
    @rule(rare=st.integers(0, 9))
    def finishes(self, rare: int) -> None:
        if not rare:
            self.channels.finish()
            self.ends = True

    @invariant()
    def waits_for_what_was_begun(self) -> None:
        begun = any(sender.begun for sender in self.senders)
        assert not (self.ends and begun) or self.channels.finishing

    def teardown(self) -> None:
        """All that live hear all answers, and then once that the owner ends, with what it has begun of theirs."""
        if not self.ends:
            self.channels.finish()
        self.turn()  # a process that has died with requests unread
        for _ in range(2000):
            self.turn()
            if not any(self.heard_all(sender) for sender in self.senders):
                break
        assert self.channels.finishing == any(sender.begun for sender in self.senders)
        self.channels.end()
        for sender in self.senders:
            assert not sender.expected
            ((token, flags, body),) = sender.hear()
            assert (token, flags, sorted(forward.decode_end(body))) == (0, forward.ENDS, sorted(sender.begun))
            sender.link.close()
        self.channels.close()
        self.epoll.close()
        self.folder.cleanup()

    def heard_all(self, sender: Sender) -> bool:
        """Whether there is more for it to hear."""
        for answer in sender.hear():
            assert answer == sender.expected.pop(0)
        return bool(sender.expected)


def request_of(token: int, key: int, body: bytes) -> Forwarded:
    """A request of API `key`."""
    return Forwarded(token, key, 0, None, "host", "PLAINTEXT", body)


Owner.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestOwner = Owner.TestCase
