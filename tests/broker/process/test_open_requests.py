"""What an owner has begun, and what it says of it at its end."""

from __future__ import annotations

import socket

import pytest

from odradek.broker.process import open_requests
from odradek.broker.process.open_requests import OpenRequests
from odradek.ipc import forward
from odradek.ipc.channel import Channel

JOIN, COMMIT = 11, 8


def pair() -> tuple[Channel, Channel]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Channel(ours), Channel(theirs)


def said(worker: Channel) -> tuple[int, ...]:
    (message,) = worker.receive()
    token, flags, body = forward.decode_reply(message)
    assert (token, flags) == (0, forward.ENDS)
    return forward.decode_end(body)


def test_each_worker_hears_which_of_its_requests_must_not_be_sent_again() -> None:
    (first, one), (second, two), (third, three) = pair(), pair(), pair()
    requests = OpenRequests((JOIN,))
    for token, link, key in ((1, first, COMMIT), (2, first, JOIN), (1, second, COMMIT), (3, first, COMMIT)):
        requests.taken(link, token, key)
    requests.answered(first, 3)
    requests.answered(second, 7)  # it was never taken
    requests.end([first, second, third])
    assert (said(one), said(two), said(three)) == ((1,), (1,), ())


def test_it_waits_for_what_was_begun_but_not_for_ever_and_not_for_other_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link, _ = pair()
    requests = OpenRequests((JOIN,))
    requests.taken(link, 1, JOIN)
    requests.finish()
    assert not requests.finishing
    requests.taken(link, 2, COMMIT)
    assert requests.finishing
    requests.gone(link)
    assert not requests.finishing
    requests.taken(link, 3, COMMIT)
    monkeypatch.setattr(open_requests, "FINISH_S", 0.0)
    requests.finish()
    assert not requests.finishing
