"""A worker's channels to the coordinator and the controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.ipc import forward
from odradek.ipc.channel import Channel, Listener
from odradek.workers.dispatch import upstream
from odradek.workers.dispatch.upstream import LOST, Upstream

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
