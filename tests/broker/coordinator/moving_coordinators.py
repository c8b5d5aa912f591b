"""Two brokers that coordinate groups in turn: real groups, writer and loader of each, over replicated logs in memory.

A partition of `__consumer_offsets` has a log on each broker. The leader appends; `replicate` copies; a failover makes
the other broker lead with what it has, and cuts the former leader's log to that.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

from odradek.broker.coordinator.effects import settle
from odradek.broker.coordinator.internal_topic import InternalTopic
from odradek.groups.events import Answer, Commit, GroupConfig, Now, Reload
from odradek.groups.groups import Groups
from odradek.groups.loading import GroupReplay
from odradek.groups.log_writer import LogBusy, LogError, LogWriter
from odradek.groups.offsets import TopicPartition
from odradek.groups.records import OffsetKey, OffsetValue, decode_key, decode_offset_value
from odradek.ipc import slots
from odradek.protocol.errors import Error
from odradek.protocol.records import batch_v2, control

PARTITIONS, TIMEOUT_MS = 2, 1 << 40  # no request waits for too long: it would be refused, and yet be in the log


class Shared:
    """One partition: its leader and leader epoch, the log of each broker, and the committed records."""

    def __init__(self) -> None:
        self.leader = self.epoch = 0
        self.logs: list[list[bytes]] = [[], []]
        self.hw = 0

    def end(self, broker: int) -> int:
        log = self.logs[broker]
        return batch_v2.header(log[-1]).last_offset + 1 if log else 0

    def append(self, batch: bytes) -> int:
        base = self.end(self.leader)
        self.logs[self.leader].append(base.to_bytes(8, "big") + batch[8:])
        return base

    def replicate(self) -> None:
        """The follower gets a batch, and says so."""
        mine, other = self.logs[self.leader], self.logs[1 - self.leader]
        if len(other) < len(mine):
            other.append(mine[len(other)])
        self.hw = max(self.hw, self.end(1 - self.leader))

    def fail_over(self) -> None:
        self.leader, self.epoch = 1 - self.leader, self.epoch + 1
        del self.logs[1 - self.leader][len(self.logs[self.leader]) :]

    def committed(self) -> list[bytes]:
        return [one for one in self.logs[self.leader] if batch_v2.header(one).last_offset < self.hw]


class TopicLog:
    """What a broker's coordinator process sees of `shared`, as broker.coordinator.internal_topic_log."""

    def __init__(self, broker: int, shared: list[Shared], rng: random.Random) -> None:
        self.broker, self.shared, self.rng = broker, shared, rng
        self.terms: dict[int, int] = {}
        self.busy = False
        self.error: Error | None = None

    def lasts(self, partition: int) -> bool:
        one = self.shared[partition]
        return one.leader == self.broker and self.terms.get(partition) == one.epoch

    def check(self, partition: int) -> Shared:
        if not self.lasts(partition):
            raise LogError(Error.NOT_LEADER_OR_FOLLOWER)
        return self.shared[partition]

    def enter(self, partition: int) -> bool:
        one = self.shared[partition]
        if one.leader == self.broker:
            self.terms[partition] = one.epoch
        return one.leader == self.broker

    def leave(self, partition: int) -> None:
        self.terms.pop(partition, None)

    def ended(self) -> list[int]:
        return [partition for partition in self.terms if not self.lasts(partition)]

    def max_batch_bytes(self, partition: int) -> int:
        return 1 << 20

    def append(self, partition: int, batch: bytes) -> int:
        one = self.check(partition)
        if self.busy:
            raise LogBusy
        if self.error is not None:
            raise LogError(self.error)
        return one.append(batch)

    def passed(self, partition: int, end: int) -> bool:
        return self.check(partition).hw >= end

    def request_ring(self, partitions: Iterable[int]) -> None:
        pass

    def state(self, partition: int) -> int:
        return slots.LEADER if self.shared[partition].leader == self.broker else slots.FOLLOWER

    def read_all(self, partition: int) -> Generator[bytes | None, None, int]:
        at = 0
        while True:
            if self.rng.random() < 0.3:
                yield None
            log = self.check(partition).logs[self.broker]
            if at == len(log):
                return self.shared[partition].end(self.broker)
            yield log[at]
            at += 1

    def is_certain(self, partition: int, end: int) -> bool:
        return self.lasts(partition) and self.shared[partition].hw >= end


class Coordinator:
    """A broker's coordinator process."""

    def __init__(self, broker: int, world: World) -> None:
        self.broker, self.world = broker, world
        self.machine = Groups(GroupConfig(commit_timeout_ms=TIMEOUT_MS, retention_ms=60_000))
        self.log = TopicLog(broker, world.shared, world.rng)
        self.writer = LogWriter(self.log, self.machine.partition_of, TIMEOUT_MS, 0, self.machine.reset)
        self.topic = InternalTopic(
            self.machine, self.log, self.writer, broker, lambda: None, GroupReplay,  # type: ignore[arg-type]
        )  # fmt: skip
        self.follow()

    def follow(self) -> None:
        """The metadata of now."""
        rows = [SimpleNamespace(leader=one.leader) for one in self.world.shared]
        topic = _Topic(rows)
        self.topic.follow(SimpleNamespace(topics={"__consumer_offsets": topic}), self.world.now)  # type: ignore[arg-type]

    def turn(self) -> None:
        now = self.world.now
        self.machine.tick(now)

        def do(effect: Any) -> None:
            if isinstance(effect, Answer):
                self.world.answered(effect.token, effect.result)
            elif isinstance(effect, Reload):
                self.topic.reload(effect.key)
            else:
                self.writer.add(effect, now)

        settle(self.machine, do, self.writer, self.log, now)  # type: ignore[arg-type]
        self.topic.step(now)
        settle(self.machine, do, self.writer, self.log, now)  # type: ignore[arg-type]
        assert not self.world.wrong, self.world.wrong  # `settle` catches what an effect raises

    def holds_markers(self, partition: int, producer_id: int) -> bool:
        """As broker.coordinator.group_coordinator."""
        return self.topic.is_partly_loaded(partition) or self.writer.has_appends_of(producer_id)


class _Topic:
    def __init__(self, partitions: list[Any]) -> None:
        self.id, self.partitions = b"1" * 16, partitions

    def __len__(self) -> int:
        return len(self.partitions)


@cache
def _rows(batch: bytes) -> list[tuple[tuple[str, TopicPartition, int], int]]:
    """The committed offsets in a batch: group, partition, value; and the record's offset."""
    found = []
    for offset, _, key, value, _ in batch_v2.iterate(batch) if not batch_v2.header(batch).is_control else ():
        decoded = decode_key(key or b"")
        if isinstance(decoded, OffsetKey) and value is not None:
            tp = decoded.topic, decoded.partition
            found.append(((decoded.group, tp, decode_offset_value(value).offset), offset))
    return found


class Marker:
    """One that must be written to a partition, as broker.coordinator.txn_markers does it."""

    def __init__(self, partition: int, producer_id: int, commit: bool) -> None:
        self.partition, self.producer_id, self.commit = partition, producer_id, commit
        self.written: tuple[int, int] | None = None  # the leader epoch, and the log end behind it


class World:
    """See the module's docstring. Values of offsets are unique, so that each record is known by its own."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = Now(1_000, 1_700_000_000_000)
        self.shared = [Shared() for _ in range(PARTITIONS)]
        self.done: Counter[str] = Counter()
        self.tokens = 0
        self.waiting: dict[int, tuple[str, str, dict[TopicPartition, int]]] = {}  # what, group, offsets
        self.value = 0
        self.open: dict[int, set[int]] = {}  # producer → partitions that its transaction has
        self.markers: list[Marker] = []
        self.wrong: list[str] = []
        self.acked: dict[tuple[str, TopicPartition], int] = {}  # positions
        self.deleted_below: dict[int, int] = {}  # the log ends when a topic was deleted
        self.nodes = [Coordinator(broker, self) for broker in range(2)]

    def token(self) -> int:
        self.tokens += 1
        return self.tokens

    def node(self, group: str) -> Coordinator:
        """The coordinator, or sometimes the other broker."""
        partition = self.nodes[0].machine.partition_of(group)
        leader = self.shared[partition].leader
        return self.nodes[leader if self.rng.random() < 0.9 else 1 - leader]

    # -- requests

    def commit(self, group: str, tps: set[TopicPartition], producer: int | None) -> None:
        node = self.node(group)
        partition = node.machine.partition_of(group)
        if producer is not None and any(one.producer_id == producer for one in self.markers):
            return  # its transaction ends
        values = {}
        for tp in sorted(tps):
            self.value += 1
            values[tp] = self.value
        token = self.token()
        self.waiting[token] = ("commit" if producer is None else "txn commit", group, values)
        if producer is not None:
            self.open.setdefault(producer, set()).add(partition)
        offsets = {tp: OffsetValue(value, -1, "", self.now.wall_ms) for tp, value in values.items()}
        request = Commit(group, "", None, -1, offsets, producer=None if producer is None else (producer, 0))
        node.machine.commit(request, token, self.now)

    def delete_offsets(self, group: str, tps: set[TopicPartition]) -> None:
        token = self.token()
        self.waiting[token] = ("delete", group, dict.fromkeys(tps, 0))
        self.node(group).machine.delete_offsets(group, sorted(tps), token, self.now)

    def delete_group(self, group: str) -> None:
        token = self.token()
        self.waiting[token] = ("delete group", group, {})
        self.node(group).machine.delete_group(group, token, self.now)

    def end(self, producer: int, commit: bool) -> None:
        if producer in self.open and not any(one.producer_id == producer for one in self.markers):
            self.markers += [Marker(partition, producer, commit) for partition in sorted(self.open.pop(producer))]

    def answered(self, token: int, result: Any) -> None:
        what, group, values = self.waiting.pop(token)
        if what in ("commit", "txn commit"):
            good = {tp for tp, error in result.items() if error is Error.NONE}
            self.done[f"{what} {'acknowledged' if good else 'refused'}"] += 1
            partition = self.nodes[0].machine.partition_of(group)
            if good:
                positions = self.positions(partition)
                for tp in good:
                    at = positions.get((group, tp, values[tp]))
                    if at is None:
                        self.wrong.append(f"acknowledged, but not committed: {group} {tp} {values[tp]}")
                        continue
                    if what == "commit":
                        self.acked[group, tp] = max(at, self.acked.get((group, tp), -1))
        else:
            error = result[0] if isinstance(result, tuple) else result
            self.done[f"{what} {'refused' if error else 'acknowledged'}"] += 1

    def positions(self, partition: int) -> dict[tuple[str, TopicPartition, int], int]:
        """The offset of each committed record, also of one that a later record replaces."""
        return dict(row for batch in self.shared[partition].committed() for row in _rows(batch))

    # -- markers

    def mark(self) -> None:
        """As in a turn of the process: behind the groups' part."""
        for node in self.nodes:
            node.turn()
        for one in list(self.markers):
            shared = self.shared[one.partition]
            node = self.nodes[shared.leader]
            if one.written is not None and one.written[0] != shared.epoch:
                one.written = None  # the term is over: it is written again
            if one.written is None:
                if node.log.busy or node.holds_markers(one.partition, one.producer_id):
                    continue
                kind = control.COMMIT if one.commit else control.ABORT
                data = control.end_marker(
                    kind, producer_id=one.producer_id, producer_epoch=0, coordinator_epoch=0,
                    timestamp=self.now.wall_ms,
                )  # fmt: skip
                one.written = shared.epoch, shared.append(bytes(data)) + 1
            elif shared.hw >= one.written[1]:
                self.markers.remove(one)
                node.machine.end_transaction(one.partition, one.producer_id, one.commit, self.now)
                self.done["transaction ended"] += 1

    # -- what is there

    def fetch(self, group: str, tp: TopicPartition) -> None:
        """No offset is served that a failover could take away, none older than the last acknowledged one."""
        node = self.node(group)
        error, found = node.machine.fetch(group, [tp], require_stable=False)
        partition = node.machine.partition_of(group)
        if error or node.broker != self.shared[partition].leader or not node.log.lasts(partition):
            return  # a former leader may serve old ones for a moment, as in Kafka
        self.done["fetch"] += 1
        value = found[tp][0]
        if value is not None:
            at = self.positions(partition).get((group, tp, value.offset))
            assert at is not None, f"{group} {tp} is served, but not committed"
            assert at >= self.acked.get((group, tp), -1), "an older offset is served"

    def compare(self) -> None:
        """Once all is quiet, and maybe no transaction is open any more, memory equals the log."""
        ends = self.rng.random() < 0.5
        for producer in list(self.open) if ends else ():
            self.end(producer, self.rng.random() < 0.5)
        for node in self.nodes:
            node.log.busy, node.log.error = False, None
        for _ in range(60):
            for node in self.nodes:
                node.follow()
                node.turn()
            for one in self.shared:
                for _ in range(20):
                    one.replicate()
            self.mark()
            self.pass_ms(200)
        assert not self.waiting, f"no answer: {self.waiting}"
        assert not self.markers
        for partition, shared in enumerate(self.shared):
            replay = GroupReplay()
            for batch in shared.logs[shared.leader]:
                replay.feed(batch)
            machine = self.nodes[shared.leader].machine
            assert partition in machine._loaded and partition not in machine._loading
            expected = {
                name: ({tp: one.value for tp, one in each.offsets.items()}, self._open_in(each.open))
                for name, each in replay.found().items()
            }
            found = {
                name: (group.offsets.all(), self._open_in(group.offsets._open))
                for name, group in machine._groups.items()
                if group.partition == partition and group.offsets
            }
            for (name, tp), written in replay.offsets.items():
                # Forgotten for good, even where the tombstone could not be written; the next coordinator finds them.
                deleted = tp[0] == "t" and written.position < self.deleted_below.get(partition, 0)
                if deleted and tp not in found.get(name, ({},))[0]:
                    expected[name][0].pop(tp, None)
            expected, found = ({name: one for name, one in known.items() if any(one)} for known in (expected, found))
            assert found == expected, (partition, found, expected)
            other = self.nodes[1 - shared.leader].machine
            assert not [name for name, group in other._groups.items() if group.partition == partition]
        for node in self.nodes:
            assert not node.machine._unreadable and not node.machine._resetting
            assert not ends or not node.machine._open, "a producer without a transaction is remembered"
        self.done["compare"] += 1

    def _open_in(self, open_: Mapping[int, Iterable[TopicPartition]]) -> set[int]:
        """The producers with offsets in open transactions, but for those of a deleted topic."""
        return {one for one, tps in open_.items() if not self.deleted_below or any(tp[0] != "t" for tp in tps)}

    def pass_ms(self, ms: int) -> None:
        self.now = Now(self.now.steady_ms + ms, self.now.wall_ms + ms)
