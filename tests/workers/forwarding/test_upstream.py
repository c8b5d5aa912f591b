"""A worker's channels to the coordinator and the controller."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from odradek.ipc import forward
from odradek.ipc.channel import Channel, Listener
from odradek.workers.forwarding import upstream
from odradek.workers.forwarding.upstream import LOST, Upstream

from ..inprocess import Bench, Client, correlations, raw


@pytest.fixture
def coordinator(bench: Bench) -> Listener:
    return Listener(bench.worker.process.run_dir / "coordinator.sock")


def accepted(bench: Bench, listener: Listener) -> Channel:
    bench.worker._next_tick = 0.0
    bench.turn(2)
    link = listener.accept()
    assert link is not None
    return link


def received(bench: Bench, link: Channel, count: int = 1) -> list[forward.Forwarded]:
    found: list[forward.Forwarded] = []
    for _ in range(1000):
        found += [forward.decode(message) for message in link.receive()]
        if len(found) >= count:
            return found
        bench.turn()
    raise AssertionError(f"{len(found)} requests of {count}")


def commit(size: int) -> bytes:
    """A request body, which only the coordinator would decode."""
    return b"m" * size


@pytest.mark.parametrize("size", [10, 150_000, 3_000_000])
def test_request_of_any_size_arrives(bench: Bench, client: Client, coordinator: Listener, size: int) -> None:
    """A socket takes 200 KB at once; the rest follows when there is room, before any answer."""
    link = accepted(bench, coordinator)
    body = commit(size)
    client.send(raw(8, 2, 5, body))
    (request,) = received(bench, link)
    assert (request.api_key, request.version, request.body) == (8, 2, body)
    link.send(forward.encode_reply(request.token, b"answer"))
    assert correlations(client.answers()) == [5]


def test_request_sent_before_the_coordinator_listens_arrives_later(bench: Bench, client: Client) -> None:
    client.send(raw(8, 2, 5, commit(1_000_000)))
    bench.turn(3)
    link = accepted(bench, Listener(bench.worker.process.run_dir / "coordinator.sock"))
    assert len(received(bench, link)[0].body) == len(commit(1_000_000))


def test_answer_of_many_fragments_arrives_whole(bench: Bench, client: Client, coordinator: Listener) -> None:
    link = accepted(bench, coordinator)
    client.send(raw(8, 2, 5, commit(1)))
    (request,) = received(bench, link)
    link.send(forward.encode_reply(request.token, b"x" * 2_000_000))
    for _ in range(200):
        link.flush()
        bench.turn()
    assert [len(answer) for answer in client.answers()] == [2_000_004]


def test_death_of_the_other_process_fails_all_requests(tmp_path: Path) -> None:
    listener, link, told = Listener(tmp_path / "x.sock"), Upstream(tmp_path / "x.sock"), []
    assert link.connect()
    for _ in range(3):
        link.send(forward.Forwarded(0, 8, 2, None, "", "", b""), lambda flags, body: told.append(flags))
    other = listener.accept()
    assert other is not None
    other.close()
    link.receive(lambda: None)
    assert told == [LOST] * 3
    assert link.channel is None
    assert link.connect()


class Asked:
    """Requests to a process in the place of the coordinator, and what became of them."""

    def __init__(self, folder: Path, count: int) -> None:
        self.listener, self.link = Listener(folder / "x.sock"), Upstream(folder / "x.sock")
        self.told: list[tuple[int, int]] = []
        self.link.connect()
        for number in range(count):
            self.link.send(REQUEST._replace(body=b"%d" % number), partial(self._tell, number))

    def _tell(self, number: int, flags: int, _: bytes) -> None:
        self.told.append((number, flags))

    def next_process(self) -> tuple[Channel, list[int]]:
        """The end of the process that the link is connected to, and the tokens that it received."""
        other = self.listener.accept()
        assert other is not None
        return other, [forward.decode(message).token for message in other.receive()]


REQUEST = forward.Forwarded(0, 8, 2, None, "", "", b"")


@pytest.mark.parametrize("reads", [True, False], ids=["read", "unread"])
def test_requests_that_an_ending_process_has_not_begun_go_to_the_next_in_their_order(
    tmp_path: Path, reads: bool
) -> None:
    """Number 1 is answered before the end, 2 was begun; the last comes between the end and its notice."""
    asked = Asked(tmp_path, 5)
    other = asked.listener.accept()
    assert other is not None
    if reads:
        other.receive()
    other.send(forward.encode_reply(2, b"here"))
    other.send(forward.encode_end([3]))
    other.close()
    asked.link.send(REQUEST, lambda flags, _: asked.told.append((5, flags)))
    asked.link.receive(lambda: None)
    asked.link.receive(lambda: None)
    assert asked.told == [(1, forward.OK), (2, LOST)]
    assert asked.link.channel is None and asked.link.connect()
    other, tokens = asked.next_process()
    assert tokens == [1, 4, 5, 6]
    for token in tokens:
        other.send(forward.encode_reply(token, b""))
    asked.link.receive(lambda: None)
    assert asked.told[2:] == [(0, forward.OK), (3, forward.OK), (4, forward.OK), (5, forward.OK)]


def test_death_after_an_orderly_end_of_the_former_process_loses_what_was_in_flight(tmp_path: Path) -> None:
    """Nothing that the former process said is about the next one."""
    asked = Asked(tmp_path, 2)
    for ends in (True, False):
        other, tokens = asked.next_process()
        assert tokens == [1, 2]
        if ends:
            other.send(forward.encode_end([]))
        other.close()
        asked.link.receive(lambda: None)
        if ends:
            asked.link.receive(lambda: None)
        asked.link.connect()
    assert asked.told == [(0, LOST), (1, LOST)]


def test_requests_that_wait_for_the_next_process_are_lost_when_none_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(tmp_path, 2)
    other, _ = asked.next_process()
    other.send(forward.encode_end([]))
    other.close()
    for _ in range(2):
        asked.link.receive(lambda: None)
    monkeypatch.setattr(upstream, "_TIMEOUT_S", 0.0)
    asked.link.tick()
    assert asked.told == [(0, LOST), (1, LOST)]


def test_exception_in_one_callback_does_not_affect_other_answers(tmp_path: Path) -> None:
    listener, link, told = Listener(tmp_path / "x.sock"), Upstream(tmp_path / "x.sock"), []
    link.connect()
    link.send(forward.Forwarded(0, 8, 2, None, "", "", b""), lambda *_: 1 // 0)  # type: ignore[arg-type]  # it raises
    link.send(forward.Forwarded(0, 8, 2, None, "", "", b""), lambda flags, body: told.append(body))
    other = listener.accept()
    assert other is not None
    for message in other.receive():
        other.send(forward.encode_reply(forward.decode(message).token, b"here"))
    link.receive(lambda: None)
    assert told == [b"here"]


def test_requests_to_a_process_that_does_not_start_time_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link, told = Upstream(tmp_path / "missing.sock"), []
    link.send(forward.Forwarded(0, 8, 2, None, "", "", b""), lambda flags, body: told.append(flags))
    link.tick()
    assert told == []
    monkeypatch.setattr(upstream, "_TIMEOUT_S", 0.0)
    link.tick()
    assert told == [LOST]
