"""The invariants after each step of a history, and once all faults have ended.

A record is committed if any replica has ever shown it below its high watermark. An unclean election, where one is
allowed, may lose records committed in earlier epochs, which are counted; records committed from its epoch on must stay.

A loss of power removes unsynced records from logs, and acknowledgements do not wait for a sync. So the guarantee is
Kafka's: a committed record stays while a member of the ISR that can be elected has it. In detail:
- A replica that has lost records may lack committed ones in the ISR that it returns to, until it has fetched them.
- It may be elected only if no other member of that ISR is available, as Kafka's last member of an ISR may: a complete
  but unavailable member does not count. That election may lose records, and is counted like an unclean one.
- A replica that joins an ISR has all committed records, except one that has lost them since and is not back yet: its
  former life no longer counts.
- A replica without a loss of power loses nothing, and no log loses synced records.
- A leader does not assign the offsets and the epoch of its lost records to other records: logs would diverge without a
  trace. (`appended` checks it.)
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from odradek.cluster.tree import tree as t
from odradek.cluster.tree import znodes
from odradek.cluster.tree.znodes import PartitionState
from odradek.ipc import slots

from .disk import Directory

if TYPE_CHECKING:
    from .cluster import Cluster

_NOTICED_S = 5.0  # after which all brokers know, and nothing of it is in flight

Key = tuple[bytes, int]  # topic id, partition
Record = tuple[int, int]  # epoch, value


class Violation(AssertionError):
    """An invariant does not hold."""


class Invariants:
    """Everything observed in a cluster so far. A violation stops the world."""

    def __init__(self, cluster: Cluster, unclean: bool) -> None:
        self.cluster = cluster
        self.lost = 0  # committed records, by unclean elections
        self.acked: dict[Key, dict[int, Record]] = defaultdict(dict)
        self.exempt: set[tuple[int, Key]] = set()  # replicas whose disk is new, until they have left the ISR
        self.cut_short: dict[tuple[int, Key], int] = {}  # replicas that have lost records, and where their logs ended
        self.allowed: set[str] = set()  # topics for which unclean elections were allowed
        self._unclean = unclean
        self._lossy: dict[Key, int] = {}  # the epochs of partitions' last unclean elections
        self._committed: dict[Key, list[Record]] = defaultdict(list)
        self._matching: dict[tuple[Key, int, int], int] = {}
        self._writers: dict[tuple[Key, int], int] = {}
        self._origins: dict[int, Key] = {}  # which partition a value was sent to
        self._verified: dict[tuple[int, Key], int] = defaultdict(int)
        self._served: dict[tuple[int, Key], Directory] = {}
        self._deleted: dict[Key, int] = defaultdict(int)  # below these offsets, by DeleteRecords
        self._marks: dict[tuple[int, int], tuple[int, int]] = {}  # of a slot's life: led since, high watermark
        self._deleted_logs: dict[Key, list[Directory]] = defaultdict(list)
        self._lost_with_power: dict[Key, list[tuple[int, list[Record]]]] = defaultdict(list)  # by which brokers
        self._released: list[Any] = []  # since the step before
        self._grown = False  # whether more is committed than after the step before
        self._controllers: dict[int, int] = {}
        self._zxid = -1
        self.states: dict[str, PartitionState] = {}  # by path
        self.keys: dict[str, Key] = {}
        self._elections: dict[tuple[str, int], tuple[int, list[int]]] = {}  # by path and epoch: whom, of which ISR

    @property
    def of_logs(self) -> tuple[Any, ...]:
        """A tracker for a disk."""
        return self.cluster.world.effect, self.appended, self.truncated, self.led, self.released

    def wrong(self, text: str) -> None:
        """Stop the world with this violation."""
        world = self.cluster.world
        world.say(f"VIOLATION: {text}")
        if world.unforeseen is None:
            world.unforeseen = Violation(text)

    # -- logs

    def appended(self, directory: Directory, offset: int) -> None:
        """Two logs with the same epoch at an offset are equal up to there."""
        chain = directory.chain[offset + 1]
        if chain is None:  # what is below its base belonged to another log
            return
        epoch, value = directory.records[offset]
        if self._origins.setdefault(value, directory.key) != directory.key:
            self.wrong(f"{_name(directory)}: offset {offset} has {value}, which another topic of that name had")
        at = directory.key, offset, epoch
        if self._matching.setdefault(at, chain) != chain and directory.topic not in self.cluster.going():
            self.wrong(f"{_name(directory)}: offset {offset} of epoch {at[2]} is not what another log has there")

    def truncated(self, directory: Directory) -> None:
        """Verify again what was verified before."""
        at = directory.disk.broker, directory.key
        self._verified[at] = min(self._verified[at], 0 if directory.deleted else len(directory.records))
        if directory.deleted:
            self._deleted_logs[directory.key].append(directory)
        self._grown = True  # the others of the ISR are to have all that is committed

    def led(self, directory: Directory, epoch: int) -> None:
        """Only one broker appends as leader of an epoch."""
        broker = directory.disk.broker
        if self._writers.setdefault((directory.key, epoch), broker) != broker:
            self.wrong(
                f"{_name(directory)}: brokers {self._writers[directory.key, epoch]} and {broker} lead in {epoch}"
            )

    def deleted(self, directory: Directory, upto: int) -> None:
        """A leader has carried out DeleteRecords."""
        self._deleted[directory.key] = max(self._deleted[directory.key], upto)

    # -- the tree

    def written(self, session: Any, operation: t.Operation, before: bytes | None) -> None:
        """Epochs only grow; only the owner of an epoch writes in it."""
        path = operation.path
        if path == znodes.CONTROLLER_EPOCH and isinstance(operation, t.Set):
            self._controllers[int(operation.data)] = session.broker
        if isinstance(operation, t.Delete) and path.startswith(znodes.TOPICS + "/") and session.broker:
            self._check_controller(session.broker, path)
        if not path.endswith("/state"):
            return
        if isinstance(operation, t.Delete):
            self.states.pop(path, None)
        elif isinstance(operation, (t.Set, t.Create)):
            after = znodes.decode_state(operation.data)
            self._state_written(session.broker, path, znodes.decode_state(before) if before else None, after)
            self.states[path] = after
            self.keys[path] = self._key(path)

    def _key(self, path: str) -> Key:
        _, _, _, topic, _, index, _ = path.split("/")
        try:
            node = self.cluster.topic(topic)
        except znodes.MalformedNode:  # by a test: it is what it was
            return self.keys[path]
        return node.id or b"", int(index)

    def _state_written(self, writer: int, path: str, before: PartitionState | None, after: PartitionState) -> None:
        self.cluster.world.say(f"tree: {path[15:-6]} leader {after.leader} epoch {after.leader_epoch} isr {after.isr} "
                               f"by {writer} in {after.controller_epoch}")  # fmt: skip
        if not after.isr:
            self.wrong(f"{path}: an empty ISR")
        if before is not None and after.leader_epoch == before.leader_epoch:
            self._joined(path, set(after.isr) - set(before.isr))
            if not writer == after.leader == before.leader:
                self.wrong(f"{path}: {writer} writes in epoch {after.leader_epoch} of {before.leader}")
            return
        if after.controller_epoch != self._check_controller(writer, path):
            self.wrong(f"{path}: written by {writer} as controller of {after.controller_epoch}, which is over")
        if before is None:
            return
        if after.leader_epoch < before.leader_epoch:
            self.wrong(f"{path}: epoch {before.leader_epoch} is followed by {after.leader_epoch}")
        if not set(after.isr) <= set(before.isr):
            self._elected_uncleanly(path, before, after)
        self._elections[path, after.leader_epoch] = after.leader, before.isr

    def _joined(self, path: str, brokers: set[int]) -> None:
        """A replica that joins again after a loss of power lacks nothing. A replica whose log directory has failed does
        not become in sync, once the failure is known there.

        A controller that is elected then may elect it, uncleanly where that is allowed, as Kafka's may: it learns of
        failed directories from the responses to its first requests.
        """
        topic = path.split("/")[3]
        for broker in brokers:
            if self._settled(broker):
                self.cut_short.pop((broker, self._key(path)), None)
            directory = self.cluster.brokers[broker].disk.find(topic, self._key(path))
            if directory is not None and directory.log_dir.broken and self._failed_long_ago(directory):
                self.wrong(f"{path}: broker {broker} joins the ISR with a log in {directory.log_dir}, which has failed")

    def _failed_long_ago(self, directory: Directory) -> bool:
        since = directory.log_dir.failed_at
        return 0 < since < self.cluster.world.now - _NOTICED_S

    def _elected_uncleanly(self, path: str, before: PartitionState, after: PartitionState) -> None:
        if after.isr != [after.leader] or not (self._unclean or path.split("/")[3] in self.allowed):
            self.wrong(f"{path}: the ISR {before.isr} is followed by {after.isr}, which no leader has said")
        for broker in before.isr:
            if self._is_well(path, broker):
                self.wrong(f"{path}: {after.leader} is elected uncleanly, and {broker} of {before.isr} is there")
        self._lossy[self._key(path)] = after.leader_epoch

    def _is_well(self, path: str, number: int) -> bool:
        """Whether a broker has been up so long that any controller knows it, with a log on a working disk."""
        cluster, broker = self.cluster, self.cluster.brokers[number]
        node = cluster.zookeeper.nodes.get(f"{znodes.BROKER_IDS}/{number}")
        known = broker.registered_at < cluster.world.now - _NOTICED_S
        if not broker.registered or node is None or node.czxid != broker.epoch or not known or broker.shared.draining:
            return False
        directory = broker.disk.find(path.split("/")[3], self._key(path))
        return directory is not None and not directory.log_dir.broken

    def _past(self, key: Key, epoch: int) -> bool:
        """Whether an unclean election is later than `epoch`: records of that epoch may be lost."""
        return epoch < self._lossy.get(key, -1)

    def wiped(self, broker: int) -> None:
        """A broker has lost its disk: it has nothing of the ISRs that it is in."""
        self.exempt |= {(broker, self.keys[path]) for path, state in self.states.items() if broker in state.isr}

    def lost_power(self, broker: int, cut: dict[Key, tuple[int, list[Record]]]) -> None:
        """Logs of a broker have lost the records from an offset on."""
        for key, (end, records) in cut.items():
            self.cut_short[broker, key] = end + len(records)
            self._lost_with_power[key].append((broker, records))

    def _check_controller(self, writer: int, path: str) -> int:
        """The controller's epoch; only the broker elected for it writes in it."""
        epoch = int(self.cluster.zookeeper.nodes[znodes.CONTROLLER_EPOCH].data)
        if self._controllers.get(epoch) != writer:
            self.wrong(f"{path}: changed by {writer}, but broker {self._controllers.get(epoch)} is the controller")
        return epoch

    # -- slots

    def released(self, partition: Any) -> None:
        """A partition's lock is released: all processes see its slot.

        In one step it may show two states: a leader that receives two epochs at once, its own and another's, commits in
        the first, and has its high watermark in the second.
        """
        self._grown |= self._look(partition)
        self._released.append(partition)

    def _look(self, partition: Any) -> bool:
        """A replica's high watermark; whether it commits anything new."""
        values, directory = partition.slot.read(), partition.directory
        state, hw = values[slots.F_STATE], values[slots.F_HW]
        if values[slots.F_INCARNATION] != partition.incarnation or state not in (slots.LEADER, slots.FOLLOWER):
            return False
        self._serves(directory)
        if directory.topic_id != partition.topic_id:
            self.wrong(f"{_name(directory)}: the log of another topic of that name is served")
        if state == slots.LEADER and (directory.disk.broker, directory.key) in self.cut_short:
            self._leads_cut_short(directory, values[slots.F_LEADER_EPOCH])
        if self._past(directory.key, values[slots.F_LEADER_EPOCH]):
            return False
        if not hw <= values[slots.F_LEO] == len(directory.records):
            self.wrong(f"{_name(directory)}: {hw=}, leo={values[slots.F_LEO]}, {len(directory.records)} records")
        if state == slots.LEADER:
            life = directory.disk.broker, partition.incarnation
            led, before = self._marks.get(life, (-1, 0))
            if led == values[slots.F_LED_SINCE] and hw < before:
                self.wrong(f"{_name(directory)}: the leader's high watermark goes from {before} back to {hw}")
            self._marks[life] = values[slots.F_LED_SINCE], hw
        return self._shown(directory, hw, state == slots.LEADER)

    def _serves(self, directory: Directory) -> None:
        """Nothing is verified of a log that was created in another log directory when a disk had failed."""
        at = directory.disk.broker, directory.key
        if self._served.setdefault(at, directory) is not directory:
            self._served[at] = directory
            self._verified[at] = 0

    def _leads_cut_short(self, directory: Directory, epoch: int) -> None:
        """A member of the ISR that has lost records leads; no other member that has them can."""
        path, broker, key = znodes.state_path(directory.topic, directory.index), directory.disk.broker, directory.key
        state = self.states.get(path)
        if state is None or self.keys[path] != key:
            return
        leader, isr = self._elections.get((path, epoch), (-1, []))
        if state.leader_epoch == epoch:  # else the request is late
            leader, isr = state.leader, [*isr, *state.isr]
        if leader != broker:
            return
        for other in isr:
            if (other, key) not in self.cut_short and self._is_well(path, other):
                self.wrong(f"{path}: {broker} leads, which has lost power; {other} of {isr} has not")
        self._lossy[key] = epoch
        del self.cut_short[broker, key]

    def _starts(self, partition: Any) -> None:
        """A log begins where it did, or where a client has had records deleted."""
        values, directory = partition.slot.read(), partition.directory
        start, deleted = values[slots.F_LOG_START], self._deleted[directory.key]
        served = values[slots.F_STATE] in (slots.LEADER, slots.FOLLOWER)
        if served and start > deleted and directory.key not in self._lossy:
            self.wrong(f"{_name(directory)} begins at {start}; nothing was deleted from {deleted} on")

    def _shown(self, directory: Directory, hw: int, leads: bool) -> bool:
        committed, at = self._committed[directory.key], (directory.disk.broker, directory.key)
        if not leads and directory.key in self._lossy:  # it shows what it had until it is cut
            return False
        known = len(committed)
        self._compare(directory, min(hw, known), "shows")
        if hw > len(committed):
            if not leads:
                self.wrong(f"{_name(directory)}: a follower shows up to {hw}, no leader beyond {known}")
            fresh = directory.records[len(committed) : hw]
            if None in fresh:  # of a log that restarts where its unclean leader's begins
                return False
            committed.extend(fresh)
            self._verified[at] = hw
        return len(committed) > known

    def _compare(self, directory: Directory, upto: int, what: str) -> None:
        """A log must have the committed records."""
        committed, at = self._committed[directory.key], (directory.disk.broker, directory.key)
        start = max(self._verified[at], directory.base, self._log_start(directory))
        lossy = self._lossy.get(directory.key, -1)
        if directory.base > self._deleted[directory.key] and lossy < 0:
            self.wrong(f"{_name(directory)} {what} nothing before {directory.base}, which was not deleted")
        if start >= upto or directory.topic in self.cluster.going():
            return
        if directory.records[start:upto] == committed[start:upto]:
            self._verified[at] = upto
            return
        pairs = enumerate(zip(directory.records[start:upto], committed[start:upto], strict=False), start)
        offset = next((n for n, (one, other) in pairs if one not in (other, None)), len(directory.records))
        if any(epoch >= lossy for epoch, _ in committed[offset:]):
            here = directory.records[offset] if offset < len(directory.records) else "nothing"
            self.wrong(f"{_name(directory)} {what} {here} at {offset}, where {committed[offset]} was committed")
            return
        self.lost += len(committed) - offset
        del committed[offset:]
        for other in self.cluster.brokers:
            at = other, directory.key
            self._verified[at] = min(self._verified[at], offset)

    def _log_start(self, directory: Directory) -> int:
        """What is below it is deleted and never shown: it need not equal the other replicas."""
        broker = self.cluster.brokers[directory.disk.broker]
        partition = broker.workers.log.get(directory.topic, directory.index) if broker.up else None
        if partition is None or partition.directory is not directory:
            return directory.start_checkpoint
        values = partition.slot.read()
        served = values[slots.F_STATE] in (slots.LEADER, slots.FOLLOWER)
        return int(values[slots.F_LOG_START]) if served else directory.start_checkpoint

    # -- after each step

    def check(self) -> None:
        """All changes since the last step."""
        released, self._released = self._released, []
        for partition in released:
            self._starts(partition)
        zxid = self.cluster.zookeeper.zxid
        if self._grown or zxid != self._zxid:
            self._grown, self._zxid = False, zxid
            self.in_sync()

    def in_sync(self) -> None:
        """Members of the ISR have all committed records; all acknowledged records are committed."""
        for path, state in self.states.items():
            key = self.keys[path]
            committed = self._committed[key]
            for broker in [broker for broker in state.isr if self._verified[broker, key] < len(committed)]:
                self._in_sync(path, broker, key)
        if self.exempt:
            self.exempt = {one for one in self.exempt if self._in_isr(*one)}
        if self.cut_short:
            self.cut_short = {one: end for one, end in self.cut_short.items() if self._counts(*one)}

    def _in_sync(self, path: str, broker: int, key: Key) -> None:
        topic = path.split("/")[3]
        if (broker, key) in self.exempt or topic in self.cluster.going():
            return
        directory = self.cluster.brokers[broker].disk.find(topic, key)
        if (broker, key) in self.cut_short and self._lacks(directory, (broker, key)):
            return
        if directory is not None:
            self._compare(directory, len(self._committed[key]), "is in the ISR and has")
        elif key not in self._lossy:
            self.wrong(
                f"{path}: broker {broker} is in the ISR and has no log; {len(self._committed[key])} are committed"
            )

    def _lacks(self, directory: Directory | None, replica: tuple[int, Key]) -> bool:
        """Whether a replica may still lack what it lost with the power."""
        if directory is not None and len(directory.records) < self.cut_short[replica]:
            return True
        del self.cut_short[replica]
        return False

    def _counts(self, broker: int, key: Key) -> bool:
        """Whether it is in the ISR, or the leader may add it by fetches from before its crash."""
        return not self._settled(broker) or self._in_isr(broker, key)

    def _settled(self, number: int) -> bool:
        """Whether a controller has handled a broker's registration: until then a late write may add it to an ISR, and
        each controller removes it again (cluster.decisions.broker_epochs).
        """
        broker, node = self.cluster.brokers[number], self.cluster.zookeeper.nodes.get(znodes.SETTLED_EPOCHS)
        if not broker.registered or node is None:
            return broker.registered
        try:
            return znodes.decode_settled_epochs(node.data).get(number) == broker.epoch
        except znodes.MalformedNode:
            return False

    def _in_isr(self, broker: int, key: Key) -> bool:
        return any(self.keys[path] == key and broker in state.isr for path, state in self.states.items())

    # -- producers

    def acknowledged(self, topic: str, key: Key, offset: int, record: Record, min_isr: int) -> None:
        """acks=all: the record must never be lost. It is committed, so that every member of each later ISR must have
        it, and at least `min_isr` replicas have it, or had it until their logs were deleted or they lost power.

        The leader's ISR counts, as for Kafka's `min.insync.replicas`. A leader that does not know yet that a move is
        complete still has a replica in it that is deleted at once, since the controller does not wait for the leader's
        response. Records that this replica had fetched are then acknowledged a moment later.
        """
        logs = [one.disk.find(topic, key) for one in self.cluster.brokers.values()] + self._deleted_logs[key]
        holders = {log.disk.broker for log in logs if log is not None and _holds(log, offset, record)}
        holders |= {broker for broker, lost in self._lost_with_power[key] if record in lost}
        if len(holders) < min_isr and not self._may_lack(topic, key):
            self.wrong(f"{topic}-{key[1]}: acknowledged at {offset}: {record}, which only {sorted(holders)} have")
        self.acked[key][offset] = record
        committed = self._committed[key]
        if (offset >= len(committed) or committed[offset] != record) and not self._past(key, record[0]):
            self.wrong(f"acknowledged at {offset}: {record}, which is not committed")

    def _may_lack(self, topic: str, key: Key) -> bool:
        """Whether replicas of a partition may have lost records, or belong to a topic that was removed by hand."""
        remade = topic not in self.cluster.topics or self.cluster.topic(topic).id != key[0]
        return bool(self.exempt) or remade

    def check_acked(self) -> None:
        """At the end of the history."""
        for key, acked in self.acked.items():
            committed = self._committed[key]
            for offset, record in acked.items():
                if offset >= len(committed) or committed[offset] != record:
                    if not self._past(key, record[0]):
                        there = committed[offset] if offset < len(committed) else "nothing"
                        self.wrong(f"acknowledged at {offset}: {record}; there is {there}")
                    self.lost += 1


def _holds(directory: Directory, offset: int, record: Record) -> bool:
    """Whether it exists, or is deleted already."""
    return offset < len(directory.records) and directory.records[offset] in (record, None)


def _name(directory: Directory) -> str:
    return f"{directory.topic}-{directory.index} on broker {directory.disk.broker}"
