"""Other clients account for every offset of random logs; the reader returns the same records as they do."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from ..clients.admin import unique
from ..clients.raw.batches import CODEC_BITS, batch, compress, record
from ..clients.raw.calls import produce
from ..clients.transactions import Confluent, await_stable
from ..harness.broker import Broker
from .accounting import ABORTED, COMPACTED, CONTROL, DELETED, RECORD, Account, account
from .local import Local
from .reads import read
from .test_brokers import delete_records_before
from .test_segments import CLEANER, compacted
from .test_segments import COMPACTED as COMPACTING

pytestmark = pytest.mark.live

Fresh = Callable[..., Broker]
SEEDS = (1, 2, 3)


def written(rnd: random.Random, topic: Local, steps: int, keyed: bool) -> None:
    """Write batches of all sizes and codecs, in committed, aborted or no transactions."""
    producers = [Confluent(topic.broker, unique("id")) for _ in range(2)]
    for _ in range(steps):
        if rnd.random() < 0.4:
            producer = rnd.choice(producers)
            producer.begin()
            for number in range(rnd.randrange(1, 12)):
                producer.send(topic.name, b"transactional %d" % number, key=_key(rnd, keyed))
                if rnd.random() < 0.3:
                    producer.flush()
            producer.flush()
            producer.abort() if rnd.random() < 0.5 else producer.commit()
        else:
            _plain(rnd, topic, keyed)
    for producer in producers:
        producer.close()
    await_stable(topic.broker, topic.name)


def _plain(rnd: random.Random, topic: Local, keyed: bool) -> None:
    values = [rnd.randbytes(rnd.choice((0, 5, 80, 300))) for _ in range(rnd.choice((1, 1, 2, 7, 30)))]
    codec, key = rnd.choice(list(CODEC_BITS)), _key(rnd, keyed)
    body = b"".join(record(at, value, key) for at, value in enumerate(values))
    payload = body if codec == "none" else compress(codec, body)
    with topic.broker.wire() as wire:
        answer = produce(wire, topic.name, batch(values, payload=payload, attributes=CODEC_BITS[codec]))
    assert answer.error_code == 0


def _key(rnd: random.Random, keyed: bool) -> bytes | None:
    """Few distinct keys, so that compaction removes records."""
    return b"%d" % rnd.randrange(30) if keyed else None


def check(rnd: random.Random, topic: Local, found: Account) -> None:
    """Compare the reader with the account: the whole log and random ranges, from the files and over the wire."""
    first = found.fates.count(DELETED)
    ranges = [(first, found.stable)]
    for _ in range(12):
        start, end = sorted(rnd.sample(range(first, found.stable + 1), 2))
        ranges.append((start, end))
    for start, end in ranges:
        for level, wanted in (("read_committed", found.committed), ("read_uncommitted", found.uncommitted)):
            for local in ("auto", "off"):
                options = {"kafka_isolation_level": level, "odradek_local": local, "odradek_split_bytes": "3000"}
                rows = read(topic.broker, topic.name, start, end, **options)
                assert rows == [one for one in wanted if start <= one.offset < end], (start, end, level, local)


@pytest.mark.parametrize("seed", SEEDS)
def test_reader_equals_other_clients_on_a_log_without_compaction(broker: Any, seed: int) -> None:
    """Every offset is in a batch, except at the deleted start of the log."""
    rnd, topic = random.Random(seed), Local(broker, segment_bytes=12_000)
    written(rnd, topic, 40, keyed=False)
    delete_records_before(broker, topic.name, rnd.randrange(1, 30))
    found = account(broker, topic.name)
    assert set(found.fates) == {RECORD, ABORTED, CONTROL, DELETED}
    check(rnd, topic, found)


@pytest.mark.parametrize("seed", SEEDS)
def test_reader_equals_other_clients_on_a_compacted_log(fresh_broker: Fresh, seed: int) -> None:
    rnd, topic = random.Random(seed), Local(fresh_broker(**CLEANER), **COMPACTING | {"segment_bytes": 12_000})
    written(rnd, topic, 150, keyed=True)
    compacted(topic)
    found = account(topic.broker, topic.name)
    assert found.fates.count(COMPACTED) > 100
    assert set(found.fates) >= {RECORD, CONTROL, COMPACTED}
    check(rnd, topic, found)
