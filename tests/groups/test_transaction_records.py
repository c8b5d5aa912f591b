"""`__transaction_state` records: golden bytes, damaged input, and Apache Kafka's own decoder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.groups.fields import RecordError
from odradek.groups.records import partition_for
from odradek.groups.transactions.loading import TransactionReplay
from odradek.groups.transactions.records import decode_key, decode_value, key, value
from odradek.groups.transactions.states import State
from odradek.groups.transactions.transaction import Metadata
from odradek.protocol.records import batch_v2

from ..harness import java
from .test_transactions import LASTING, in_state
from .transaction_world import TransactionWorld

TEXT = st.text(max_size=20)
I32, I64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
EMPTY = Metadata(1000, 3, 60_000, State.EMPTY, frozenset(), -1, 1_700_000_000_000)
ONGOING = EMPTY._replace(
    state=State.ONGOING, partitions=frozenset({("b", 1), ("a", 2), ("a", 0)}), started_ms=1_699_999_999_999
)


def test_key_equals_golden_bytes() -> None:
    assert key("my-id") == b"\0\0\0\5my-id"
    assert decode_key(b"\0\0\0\5my-id") == "my-id"
    assert decode_key(b"\0\1whatever") is None


def test_values_equal_golden_bytes() -> None:
    head = bytes.fromhex("000000000000000003e800030000ea60")
    updated = (1_700_000_000_000).to_bytes(8, "big")
    assert value(EMPTY) == head + b"\0" + b"\xff" * 4 + updated + b"\xff" * 8
    partitions = bytes.fromhex("000000020001610000000200000000000000020001620000000100000001")
    assert value(ONGOING) == head + b"\1" + partitions + updated + (1_699_999_999_999).to_bytes(8, "big")


def test_version_1_with_tags_is_read() -> None:
    """Kafka writes this version if `transaction.version` is 1 or 2."""
    head = bytes.fromhex("000100000000000003e800030000ea6002")
    partitions = bytes.fromhex("020261020000000700")
    times = (11).to_bytes(8, "big") + (10).to_bytes(8, "big")
    tags = b"\3" + b"\0\x08" + (5).to_bytes(8, "big") + b"\1\x08" + (6).to_bytes(8, "big") + b"\2\2\0\2"
    found = decode_value(head + partitions + times + tags)
    assert found == Metadata(1000, 3, 60_000, State.PREPARE_COMMIT, frozenset({("a", 7)}), 10, 11, 5, 6, 2)
    assert decode_value(head + b"\0" + times + b"\0").partitions == frozenset()


@given(
    I64,
    st.integers(-1, 32767),
    I32,
    st.sampled_from(LASTING),
    st.frozensets(st.tuples(TEXT, I32), max_size=5),
    I64,
    I64,
)
def test_value_round_trip(
    producer_id: int,
    epoch: int,
    timeout: int,
    state: State,
    tps: frozenset[tuple[str, int]],
    started: int,
    updated: int,
) -> None:
    m = Metadata(producer_id, epoch, timeout, state, frozenset() if state is State.EMPTY else tps, started, updated)
    assert decode_value(value(m)) == m


@given(TEXT, st.integers(1, 200))
def test_keys_round_trip_and_have_a_partition(name: str, partitions: int) -> None:
    assert decode_key(key(name)) == name
    assert 0 <= partition_for(name, partitions) < partitions


@pytest.mark.parametrize("cut", range(len(value(ONGOING))))
def test_cut_values_raise_record_error(cut: int) -> None:
    with pytest.raises(RecordError):
        decode_value(value(ONGOING)[:cut])


@given(st.binary(max_size=80))
def test_random_bytes_raise_record_error_or_decode(data: bytes) -> None:
    for decode in (decode_key, decode_value):
        try:
            decode(data)
        except RecordError:
            pass


@pytest.mark.parametrize("wrong", [b"\0\2", b"\0\0" + b"\0" * 14 + b"\x09" + b"\0" * 20])
def test_unknown_versions_and_states_raise_record_error(wrong: bytes) -> None:
    with pytest.raises(RecordError):
        decode_value(wrong + b"\0" * 40)


def test_replay_skips_unreadable_records() -> None:
    replay = TransactionReplay()
    rows = [(b"\0\0\0\1x", value(EMPTY)), (b"\0\0\0\1y", b"\0\7"), (b"", b""), (b"\0\0\0\1z", value(EMPTY))]
    replay.feed(batch_v2.build([(at, 0, k, v, ()) for at, (k, v) in enumerate(rows)]))
    damaged = bytearray(batch_v2.build([(4, 0, b"\0\0\0\1z", None, ())]))
    damaged[-1] ^= 1
    replay.feed(bytes(damaged))
    assert set(replay.transactions) == {"x", "z"}
    replay.feed(batch_v2.build([(5, 0, b"\0\0\0\1z", None, ())]))
    assert set(replay.transactions) == {"x"}


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_kafka_reads_every_state(tmp_path: Path) -> None:
    folder = tmp_path / "__transaction_state-0"
    folder.mkdir()
    batches: list[bytes] = []
    for state in LASTING:
        batches += in_state(state)[0].log.batches[0]
    batches += _expired()
    segment = folder / f"{0:020}.log"
    segment.write_bytes(b"".join(at.to_bytes(8, "big") + batch[8:] for at, batch in enumerate(batches)))
    words = ("--transaction-log-decoder", "--print-data-log", "--deep-iteration", "--files", str(segment))
    output = java.run("3.9.1", "kafka.tools.DumpLogSegments", *words).stdout.decode()
    assert "invalid" not in output.lower() and "corrupt" not in output.lower()
    payloads = [line.split(" payload: ")[1] for line in output.splitlines() if " payload: " in line]
    keys = [line.split(" key: ")[1].split(" payload: ")[0] for line in output.splitlines() if " payload: " in line]
    assert len(payloads) == len(batches) and set(keys) == {"transaction_metadata::transactionalId=x"}, output
    said = {match.group(1) for text in payloads if (match := re.search(r"state=(\w+)", text))}
    assert said == {state.title for state in LASTING}
    assert payloads[-1] == "<DELETE>"
    assert any("partitions=[t-0]" in text and "txnTimeoutMs=60000" in text for text in payloads), payloads


def _expired() -> list[bytes]:
    world = TransactionWorld(expiration_ms=1, expiry_interval_ms=1)
    world.started()
    world.wait(10)
    assert world.transactions.get("x") is None
    return world.log.batches[0]
