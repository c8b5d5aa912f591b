"""Reading from followers (KIP-392): the preferred replica of a leader, and the records of a follower."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.ipc import replicas, slots
from odradek.protocol import errors

from ...clients.raw import batches, calls
from .. import inprocess
from ..inprocess import Bench, Client
from ..leading import Follower, lead, produce, publish

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def broker(number: int, rack: str | None, listener: str = "PLAINTEXT") -> dict[str, Any]:
    return {"id": number, "rack": rack, "endpoints": {listener: ["h", number]}}


@pytest.fixture
def racks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Broker 0 in the west leads; 1 and 2 are in the east, 3 has another listener, 4 is not alive, 5 is in the west.

    There are two records.
    """
    brokers = [broker(0, "west"), broker(1, "east"), broker(2, "east"), broker(3, "north", "OTHER"), broker(5, "west")]
    monkeypatch.setattr(inprocess, "BROKERS", brokers)
    with inprocess.bench(tmp_path, **{"replica_selector_class": SELECTOR}) as made:
        lead(made, [1, 2, 3, 4, 5], [1, 2, 3, 4, 5])
        client = made.connect()
        client.send(produce(client, [b"a"], acks=1) + produce(client, [b"b"], acks=1))
        client.answers(2)
        yield made


def fetch(bench: Bench, client: Client, rack: str, offset: int = 0, version: int = 11, wait_ms: int = 0) -> Any:
    topic: Any = uuid.UUID(bytes=bench.id_of("t")) if version >= 13 else "t"
    asked = calls.fetch_request(topic, offset, version=version, wait_ms=wait_ms)
    asked.rack_id = rack
    return client.call(asked).responses[0].partitions[0]


def come(bench: Bench, offset: int, *numbers: int, log_start: int = 0) -> None:
    """Let followers fetch at `offset`."""
    for number in numbers:
        assert Follower(bench, number).fetch(offset, log_start=log_start).error_code == 0


@pytest.mark.parametrize("version", [11, 12, 13, 17])
def test_follower_in_the_clients_rack_is_preferred(racks: Bench, version: int) -> None:
    client = racks.connect()
    come(racks, 2, 1, 5)
    for _ in range(2):  # the second request could be served from the cache
        found = fetch(racks, client, "east", 1, version, wait_ms=60_000)
        assert (found.error_code, found.preferred_read_replica, found.records or b"") == (0, 1, b"")
    assert fetch(racks, client, "west", 1, version).preferred_read_replica == -1


def test_version_without_a_rack_reads_from_the_leader(racks: Bench) -> None:
    come(racks, 2, 1, 2, 3, 4, 5)
    found = fetch(racks, racks.connect(), "east", 1, 10)
    assert [record.value for record in batches.parse(found.records)] == [b"b"]


def test_client_without_a_near_follower_reads_from_the_leader(racks: Bench) -> None:
    come(racks, 2, 1, 2, 3, 4, 5)
    client = racks.connect()
    for rack in ("", "south", "north"):  # the broker in the north has no such listener
        found = fetch(racks, client, rack, 1)
        assert (found.preferred_read_replica, bool(found.records)) == (-1, True)


def test_follower_with_the_highest_log_end_is_preferred(racks: Bench) -> None:
    client = racks.connect()
    come(racks, 1, 2)
    come(racks, 2, 1)
    slot = racks.slot("t")
    slot.words[replicas.find(slot, 2) + 4] += 60_000  # caught up later
    assert fetch(racks, client, "east").preferred_read_replica == 1
    come(racks, 2, 2)
    assert fetch(racks, client, "east").preferred_read_replica == 2


def test_preferred_follower_has_the_offset_and_is_in_sync(racks: Bench) -> None:
    client = racks.connect()
    come(racks, 1, 1)
    publish(racks, hw=2)
    assert fetch(racks, client, "east", 2).preferred_read_replica == -1
    assert fetch(racks, client, "east", 1).preferred_read_replica == 1
    come(racks, 1, 1, log_start=1)
    assert fetch(racks, client, "east", 0).preferred_read_replica == -1
    replicas.set_isr_status(racks.slot("t"), {1: replicas.OUT})
    assert fetch(racks, client, "east", 1).preferred_read_replica == -1


def test_preferred_replica_is_answered_within_a_session(racks: Bench) -> None:
    come(racks, 2, 1)
    client = racks.connect()
    asked = calls.session_request([("t", [calls.part(0, 2)])], session_epoch=0, wait_ms=60_000)
    asked.rack_id = "east"
    answer = client.call(asked)
    assert answer.responses[0].partitions[0].preferred_read_replica == 1
    asked = calls.session_request([], session=answer.session_id, session_epoch=1, wait_ms=60_000)
    asked.rack_id = "east"
    assert client.call(asked).responses[0].partitions[0].preferred_read_replica == 1


def test_no_replica_is_preferred_without_a_selector(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inprocess, "BROKERS", [broker(0, "west"), broker(1, "east")])
    lead(bench, [1], [1])
    bench._publish()
    come(bench, 0, 1)
    assert fetch(bench, client, "east").preferred_read_replica == -1


# -- at a follower


@pytest.fixture
def follower(bench: Bench, client: Client) -> Bench:
    """Three records, two of them below the high watermark; then another broker leads."""
    client.send(b"".join(produce(client, [value], acks=1) for value in (b"a", b"b", b"c")))
    client.answers(3)
    publish(bench, state=slots.FOLLOWER, leader_epoch=4, led_since=-1, hw=2)
    return bench


@pytest.mark.parametrize("version", [11, 12, 17])
def test_follower_serves_records_below_the_high_watermark(follower: Bench, version: int) -> None:
    client = follower.connect()
    for _ in range(2):
        found = fetch(follower, client, "", 0, version)
        assert (found.error_code, found.high_watermark) == (0, 2)
        assert [record.value for record in batches.parse(found.records)] == [b"a", b"b"]
    assert fetch(follower, client, "", 2, version).records in (None, b"")
    assert fetch(follower, client, "", 3, version).records in (None, b"")
    assert fetch(follower, client, "", 4, version).error_code == errors.OFFSET_OUT_OF_RANGE


def test_follower_refuses_old_clients_and_followers(follower: Bench) -> None:
    client = follower.connect()
    for _ in range(2):
        assert fetch(follower, client, "", 0, 10).error_code == errors.NOT_LEADER_OR_FOLLOWER
    assert Follower(follower, 1).fetch(0).error_code == errors.NOT_LEADER_OR_FOLLOWER


def test_fetch_waits_at_a_follower_for_the_high_watermark(follower: Bench) -> None:
    client = follower.connect()
    asked = calls.fetch_request("t", 2, version=11, wait_ms=60_000)
    for _ in range(2):
        client.send(client.frame(asked))
        follower.turn(3)
        assert client.frames() == []
        publish(follower, hw=3)
        (answer,) = client.answers(1)
        assert answer.endswith(b"c" + b"\x00")
        publish(follower, hw=2)
