"""Groups with a fake log and a manual clock, and members that send requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.groups.events import Answer, Commit, GroupConfig, Join, JoinResult, LeavingMember, Now, Reload, Sync
from odradek.groups.group import Group
from odradek.groups.groups import Groups
from odradek.groups.loading import GroupReplay
from odradek.groups.log_writer import LogBusy, LogError, LogWriter
from odradek.groups.records import OffsetValue
from odradek.protocol.errors import Error
from odradek.protocol.records import batch_v2

RANGE = (("range", b"\x00\x00\x00\x00\x00\x01\x00\x01t"),)


def drain(steps: Iterator[None]) -> None:
    """Run all steps of some work at once."""
    for _ in steps:
        pass


class FakeLog:
    """Partitions in memory. Set `busy`, `error`, `lag` (records the high watermark is behind) or `room` (batches) to
    misbehave.
    """

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.ends: dict[int, int] = {}
        self.busy = False
        self.error: Error | None = None
        self.lag = 0
        self.room: int | None = None  # the number of batches that fit; None: unlimited
        self.most = 1_048_588

    def max_batch_bytes(self, partition: int) -> int:
        return self.most

    def append(self, partition: int, batch: bytes) -> int:
        if self.busy:
            raise LogBusy
        if len(batch) > self.most:
            raise LogError(Error.MESSAGE_TOO_LARGE)
        if self.error is not None:
            raise LogError(self.error)
        if self.room is not None:
            if not self.room:
                raise LogError(Error.KAFKA_STORAGE_ERROR)
            self.room -= 1
        position = self.ends.get(partition, 0)
        stored = position.to_bytes(8, "big") + batch[8:]
        self.batches.setdefault(partition, []).append(stored)
        self.ends[partition] = position + batch_v2.header(batch).num_records
        return position

    def passed(self, partition: int, end: int) -> bool:
        return self.ends.get(partition, 0) - self.lag >= end

    def read_all(self, partition: int) -> Iterator[bytes]:
        yield from self.batches.get(partition, [])

    def records(self) -> list[tuple[bytes | None, bytes | None]]:
        return [
            (key, value)
            for batches in self.batches.values()
            for batch in batches
            for _, _, key, value, _ in batch_v2.iterate(batch)
        ]


class World:
    """One coordinator over one partition."""

    def __init__(self, log: FakeLog | None = None, partitions: int = 1, **config: Any) -> None:
        self.log = log or FakeLog()
        self.groups = Groups(GroupConfig(**config))
        self.writer = LogWriter(
            self.log, self.groups.partition_of, self.groups.config.commit_timeout_ms, faulty=self.groups.reset
        )
        self.reloads: dict[str, None] = {}
        self.now = Now(1_000, 1_700_000_000_000)
        self.answers: dict[Any, list[Any]] = {}
        self._tokens = 0
        self.groups.partitions = partitions
        for partition in range(partitions):
            self.load(partition)

    def load(self, partition: int, only: set[str] | None = None) -> None:
        if only is None:
            self.groups.will_load(partition)
        replay = GroupReplay()
        for batch in self.log.read_all(partition):
            replay.feed(batch)
        self.groups.loaded(partition, replay, self.now, only)
        self.settle()

    def group(self, group_id: str = "g") -> Group:
        """A group that exists."""
        found = self.groups.get(group_id)
        assert found is not None
        return found

    def restarted(self) -> World:
        """The coordinator of the same log after a crash."""
        successor = World(self.log, self.groups.partitions, **self.groups.config._asdict())
        successor.now = self.now
        return successor

    def settle(self) -> None:
        """Deliver answers and write appends until nothing is left, as the process does each round."""
        while self.groups.effects:
            effects, self.groups.effects[:] = list(self.groups.effects), []
            for effect in effects:
                if isinstance(effect, Answer):
                    self.answers.setdefault(effect.token, []).append(effect.result)
                elif isinstance(effect, Reload):
                    self.reloads[effect.key] = None
                else:
                    self.writer.add(effect, self.now)
            self.writer.write(self.now)
        self.writer.check(self.now)
        self._reload()
        if self.groups.effects:
            self.settle()

    def _reload(self) -> None:
        """Load the groups that were reset, once all appends of their partition are below the high watermark."""
        for key in list(self.reloads):
            partition = self.groups.partition_of(key)
            is_busy = self.writer.is_queued(partition) or partition in self.writer.awaited
            if key in self.reloads and not is_busy:
                del self.reloads[key]
                self.load(partition, {key})

    def wait(self, ms: int) -> None:
        """Let time pass, deadline by deadline."""
        end = self.now.steady_ms + ms
        while (due := self.groups.next_ms()) is not None and due <= end:
            self._move(max(due, self.now.steady_ms))
            self.groups.tick(self.now)
            self.settle()
        self._move(end)
        self.settle()

    def _move(self, steady_ms: int) -> None:
        passed = steady_ms - self.now.steady_ms
        self.now = Now(steady_ms, self.now.wall_ms + passed)

    def token(self) -> int:
        self._tokens += 1
        return self._tokens

    def answer(self, token: int) -> Any:
        """The only answer to `token`, or None if there is none yet."""
        answers = self.answers.get(token, [])
        assert len(answers) <= 1
        return answers[0] if answers else None

    def join(self, member_id: str = "", group: str = "g", **fields: Any) -> int:
        """Send JoinGroup; returns its token."""
        token = self.token()
        fields = {
            "instance_id": None, "client_id": "c", "client_host": "/127.0.0.1", "rebalance_timeout_ms": 60_000,
            "session_timeout_ms": 10_000, "protocol_type": "consumer", "protocols": RANGE, **fields,
        }  # fmt: skip
        self.groups.join(Join(group, member_id, **fields), token, self.now)
        self.settle()
        return token

    def joined(self, *args: Any, **fields: Any) -> JoinResult:
        """Send JoinGroup; return its answer, which must not be delayed."""
        result = self.answer(self.join(*args, **fields))
        assert result is not None, "JoinGroup still waits"
        return result

    def sync(self, member_id: str, generation: int, group: str = "g", **fields: Any) -> int:
        """Send SyncGroup; returns its token."""
        token = self.token()
        self.groups.sync(Sync(group, generation, member_id, **fields), token, self.now)
        self.settle()
        return token

    def beat(self, member_id: str, generation: int, instance_id: str | None = None, group: str = "g") -> Error:
        error = self.groups.heartbeat(group, member_id, instance_id, generation, self.now)
        self.settle()
        return error

    def leave(self, member_id: str, instance_id: str | None = None, group: str = "g") -> Error:
        result = self.groups.leave(group, [LeavingMember(member_id, instance_id)], self.now)
        self.settle()
        return result.error or result.members[0][1]

    def commit(self, offset: int = 7, tp: tuple[str, int] = ("t", 0), group: str = "g", **fields: Any) -> int:
        """Send OffsetCommit of one partition; returns its token."""
        token = self.token()
        fields = {"member_id": "", "instance_id": None, "generation": -1, **fields}
        metadata = fields.pop("metadata", "")
        value = OffsetValue(offset, -1, metadata, self.now.wall_ms, fields.pop("expire_ms", -1))
        self.groups.commit(Commit(group, offsets={tp: value}, **fields), token, self.now)
        self.settle()
        return token

    def committed(self, tp: tuple[str, int] = ("t", 0), group: str = "g") -> int | None:
        error, found = self.groups.fetch(group, [tp], require_stable=False)
        assert not error
        value, error = found[tp]
        assert not error
        return value.offset if value else None

    def stable(self, members: int = 2, **fields: Any) -> list[str]:
        """A stable group of dynamic members, the leader first; each member's assignment is its own id."""
        tokens = [self.join(**fields) for _ in range(members)]
        self.wait(self.groups.config.initial_delay_ms * (members + 1))
        results = [self.answer(token) for token in tokens]
        leader = next(r for r in results if r.leader == r.member_id)
        ids = [r.member_id for r in results if r is not leader]
        self.spread([leader.member_id, *ids], leader.generation)
        return [leader.member_id, *ids]

    def spread(self, ids: list[str], generation: int) -> None:
        """All members sync, the leader (first) last, with each member's own id as its assignment."""
        for member_id in ids[1:]:
            self.sync(member_id, generation)
        self.sync(ids[0], generation, assignments={member_id: member_id.encode() for member_id in ids})
