"""DeleteRecords waits for the live followers."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from odradek.ipc import slots
from odradek.protocol import errors
from odradek.storage.log import trim
from odradek.workers.apis import k21_delete_records
from odradek.workers.apis.k21_delete_records import delete_below

from ..harness.wire import decode_response
from . import inprocess
from .inprocess import Bench, Client
from .leading import Follower, lead, produce, publish

BROKERS = [{"id": number, "rack": None, "endpoints": {"PLAINTEXT": ["h", 1]}} for number in (0, 1, 2)]


@pytest.fixture
def led(bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Three records; brokers 1, 2 and 3 follow: 2 is out of sync, 3 is not alive."""
    monkeypatch.setattr(inprocess, "BROKERS", BROKERS)
    bench._publish()
    client.send(b"".join(produce(client, [b"v"]) for _ in range(3)))
    client.answers(3)
    lead(bench, [1, 2, 3], [1])
    for number in (1, 2):
        Follower(bench, number).fetch(3)
    assert bench.slot("t").state().hw == 3
    return bench


class Deletion:
    """A DeleteRecords request that may wait."""

    def __init__(self, bench: Bench, offset: int, timeout_ms: int = 60_000) -> None:
        from kafka.protocol.admin import DeleteRecordsRequest as Request

        parts = [Request.DeleteRecordsTopic.DeleteRecordsPartition(partition_index=0, offset=offset)]
        topics = [Request.DeleteRecordsTopic(name="t", partitions=parts)]
        self._asked = Request[1](topics=topics, timeout_ms=timeout_ms)
        self._client = bench.connect()
        self._client.send(self._client.frame(self._asked))
        bench.turn(3)

    def outcome(self, wait: bool = False) -> tuple[int, int] | None:
        """(error, low watermark)."""
        frames = self._client.answers(1) if wait else self._client.frames()
        if not frames:
            return None
        part: Any = decode_response(self._asked, frames[0]).topics[0].partitions[0]
        return part.error_code, part.low_watermark

    def is_gone(self) -> bool:
        """Whether its connection is closed."""
        return self._client.gone()


def test_deletion_without_followers_is_answered_at_once(bench: Bench, client: Client) -> None:
    client.send(produce(client, [b"v"]))
    client.answers(1)
    assert Deletion(bench, 1).outcome() == (0, 1)


def test_deletion_is_answered_when_all_live_followers_have_deleted(led: Bench) -> None:
    deletion = Deletion(led, 2)
    assert (deletion.outcome(), led.slot("t").state().log_start) == (None, 2)
    Follower(led, 1).fetch(3, log_start=2)
    led.turn(3)
    assert deletion.outcome() is None
    Follower(led, 2).fetch(3, log_start=2)
    led.turn(3)
    assert deletion.outcome() == (0, 2)
    assert len(led.worker.purgatory) == 0


def test_deletion_times_out(led: Bench) -> None:
    Follower(led, 1).fetch(3, log_start=1)
    assert Deletion(led, -1, 50).outcome(wait=True) == (errors.REQUEST_TIMED_OUT, 0)
    assert led.slot("t").state().log_start == 3


def test_deletion_fails_when_leadership_is_lost(led: Bench) -> None:
    deletion = Deletion(led, 2)
    publish(led, state=slots.FOLLOWER, led_since=-1)
    led.turn(3)
    assert deletion.outcome() == (errors.NOT_LEADER_OR_FOLLOWER, -1)


@pytest.mark.parametrize(
    ("state", "error"),
    [(slots.FOLLOWER, errors.NOT_LEADER_OR_FOLLOWER), (slots.OFFLINE, errors.KAFKA_STORAGE_ERROR)],
)
def test_deletion_fails_when_leadership_is_lost_before_the_lock(led: Bench, state: int, error: int) -> None:
    """The role was read without the lock, and has changed since."""
    partition = led.worker.partition_of(b"t", 0, False)
    assert partition is not None
    publish(led, state=state, led_since=-1)
    assert delete_below(partition, 2) == (-1, error)
    assert led.slot("t").state().log_start == 0


def test_deletion_does_not_wait_for_a_follower_that_dies(led: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    deletion = Deletion(led, 2)
    Follower(led, 1).fetch(3, log_start=2)
    monkeypatch.setattr(inprocess, "BROKERS", BROKERS[:2])
    led._publish()
    led.turn(3)
    assert deletion.outcome() == (0, 2)


def test_exception_while_waiting_for_followers_closes_the_connection(
    led: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the client would wait for ever."""
    deletion = Deletion(led, 2)
    with monkeypatch.context() as patch:
        patch.setattr(k21_delete_records, "low_watermark", lambda *_: 1 // 0)
        Follower(led, 1).fetch(3, log_start=2)
        led.turn(3)
    assert deletion.is_gone()


def test_disk_error_is_answered_and_logged(
    led: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: Any) -> None:
        raise OSError(errno.EACCES, "the disk refuses")

    monkeypatch.setattr(trim, "advance", failing)
    assert Deletion(led, 2).outcome(wait=True) == (errors.KAFKA_STORAGE_ERROR, -1)
    assert "the disk refuses" in caplog.text
