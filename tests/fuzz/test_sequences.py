"""Sequences of valid requests with odd values against the coordinator of a live broker.

All requests of groups, offsets and transactions in every version. `ODRADEK_FUZZ_SEED=n` draws other sequences,
`ODRADEK_FUZZ_SEQUENCES=n` sets their number. A sequence that does harm is played again alone and shortened.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import pytest

from odradek.protocol import interbroker
from odradek.workers.apis import table

from ..clients.admin import create_named, topic_id
from ..harness.broker import Broker
from .background_groups import BackgroundGroups, find_coordinator
from .playing import Target
from .sequences import Api, Player, Pools, Script, script
from .stories import PLANS, WIDE, WIDTH, story
from .watch import Watch

pytestmark = pytest.mark.live

SEED = int(os.environ.get("ODRADEK_FUZZ_SEED", "1"))
LENGTH = 14
PARTITIONS = 4  # of __consumer_offsets
MOST_GROWTH = 32 << 20
STORIES = 10  # one of this many sequences is a story

WEIGHTS = {11: 6, 14: 4, 12: 3, 8: 3, 22: 3, 24: 3, 25: 2, 28: 3, 26: 2, 13: 2}
WAITING = (11, 14)
KEYS = (8, 9, 10, 11, 12, 13, 14, 15, 16, 22, 24, 25, 26, 27, 28, 42, 47, 65, 66)
LEARNS = {
    "member_id": ["member_id"],
    "generation_id": ["generation_id", "generation_id_or_member_epoch"],
    "producer_id": ["producer_id", "v3_and_below_producer_id", "producer_id_filters"],
    "producer_epoch": ["producer_epoch", "v3_and_below_producer_epoch"],
}

GROUPS = [b"one", b"two", b"three", b"four", b""]
IDS = [b"tx-1", b"tx-2", b"tx-3", b""]
TOPICS = [b"seq-a", b"seq-b", b"seq-none", b"__consumer_offsets"]
INDEXES = [0, 0, 1, 7, -1]
PROTOCOLS = [b"range", b"sticky"]
SUBSCRIPTION = b"\0\0\0\0\0\1" + struct.pack(">h", 5) + b"seq-a"
POOLS: Pools = {
    "groups": GROUPS, "groups_names": GROUPS, "coordinator_keys": GROUPS + IDS, "key": GROUPS + IDS,
    "transactional_ids": IDS, "name": TOPICS, "partition_index": INDEXES, "partition_indexes": INDEXES,
    "partitions": INDEXES, "JoinGroup.name": PROTOCOLS, "protocol_name": PROTOCOLS, "protocol_type": [b"consumer"],
    "metadata": [SUBSCRIPTION], "session_timeout_ms": [100, 1000, 6000], "rebalance_timeout_ms": [100, 1000],
    "transaction_timeout_ms": [1000, 60_000], "retention_time_ms": [-1], "key_type": [0, 0, 1],
    "member_id": [b""], "generation_id": [-1], "generation_id_or_member_epoch": [-1], "producer_id": [-1],
    "producer_epoch": [-1], "committed_metadata": [b"", b"m"], "coordinator_epoch": [0, 1],
    "transactional_id_pattern": [b"", b".*", b"tx-[12]", b"(", b"(a*)*b"],
}  # fmt: skip


def apis() -> list[Api]:
    """The APIs that sequences use."""
    rows = table.load_rows()
    found = []
    for key in KEYS:
        low, high = rows[key].versions
        most = interbroker.message_class(rows[key].name + "Request").max_version
        found.append(Api(rows[key].name, (low, min(high, most)), WEIGHTS.get(key, 1), key in WAITING))
    return found


def clients(number: int) -> list[Pools]:
    """Three clients: two with the same group and transactional id; the third has others, or sometimes the same."""
    group, name = GROUPS[number % len(GROUPS)], IDS[number % len(IDS)]
    other = {"group_id": GROUPS, "transactional_id": IDS, "v3_and_below_transactional_id": IDS}
    same = {"group_id": [group], "transactional_id": [name], "v3_and_below_transactional_id": [name]}
    static = {"group_instance_id": [b"i1", b"i2"]}
    return [{**same, **static}, same, {**(same if number % 5 == 4 else other), **static}]


def made(number: int) -> Script:
    """Sequence `number`; every tenth is a story."""
    if number % STORIES == STORIES - 1:
        plan = PLANS[number // STORIES % len(PLANS)]
        together = clients(5 * (number // (STORIES * len(PLANS))) + 4 - number % 2)
        return story(f"{SEED}/{number}", plan, apis(), together)
    return script(f"{SEED}/{number}", apis(), clients(number), LENGTH)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A broker with background groups in each partition."""
    broker = Broker(
        tmp_path_factory.mktemp("sequences"), offsets_topic_num_partitions=PARTITIONS, offset_metadata_max_bytes=32_767
    )
    try:
        broker.start()
        with broker.wire() as wire:
            for name in ("seq-a", "seq-b"):
                create_named(wire, name, 2)
            create_named(wire, WIDE.decode(), WIDTH)
            find_coordinator(wire, "tx-1", 1)
            ids = [topic_id(wire, name).bytes for name in ("seq-a", "seq-b")]
        background = BackgroundGroups(broker, PARTITIONS)
        player = Player((broker.host, broker.port), {**POOLS, "topic_id": ids}, apis(), LEARNS)
        yield Target(broker, Watch(broker), background, player, made, SEED)
    finally:
        broker.close()


def sequences(default: int) -> int:
    """The number of sequences."""
    return int(os.environ.get("ODRADEK_FUZZ_SEQUENCES", default))


@pytest.mark.timeout(900)
def test_hundreds_of_sequences_do_no_harm(target: Target) -> None:
    target.play(range(sequences(300)))
    assert isinstance(target.background, BackgroundGroups)
    target.background.await_more()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_ten_thousand_sequences_leak_no_memory(target: Target) -> None:
    """The second half of the sequences must not need more memory than the first."""
    half = sequences(10_000) // 2
    target.play(range(300, 300 + half))
    before = target.watch.memory()
    target.play(range(300 + half, 300 + 2 * half))
    after = target.watch.memory()
    grown = {name: f"{before[name] >> 20} MiB, then {after[name] >> 20}" for name in after}
    print(f"{2 * half} sequences, no harm; memory after half of them and after all: {grown}")
    assert not any(after[name] > before[name] + MOST_GROWTH for name in after), grown


def test_background_groups_are_intact_after_all_sequences(target: Target) -> None:
    """Runs last: checks the members of the background groups, and the logs on disk."""
    assert isinstance(target.background, BackgroundGroups)
    target.background.finish()
    assert not target.watch.fault()
    target.broker.stop()
    checked = target.broker.command("check", str(target.broker.data_dir))
    assert checked.returncode == 0, checked.stdout + checked.stderr
