"""All transactional ids of this broker: checks requests and decides which records the log gets.

Pure: the caller passes the time with each call; effects queue in `effects`: answers, appends to `__transaction_state`
whose `done` must be called, markers to write, producer ids to fetch. An answer waits until its record is in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeAlias

from odradek.groups.errors import for_transaction
from odradek.groups.events import Answer, Append, Now, Reload
from odradek.groups.ownership import FAULT, Ownership
from odradek.groups.timers import Deadlines
from odradek.groups.transactions import records, transaction
from odradek.groups.transactions.events import InitResult, Markers, NeedIds, Producer, Summary, TransactionConfig
from odradek.groups.transactions.loading import TransactionReplay
from odradek.groups.transactions.states import ABORT, ADD, BY_TITLE, COMMIT, COMPLETED, EXPIRES, INIT, State
from odradek.groups.transactions.transaction import NO_EPOCH, Metadata, TopicPartition, Transaction
from odradek.protocol.errors import Error

log = logging.getLogger(__name__)

Then = Callable[[Error, Now], None]
Effect: TypeAlias = Answer | Append | Reload | Markers | NeedIds


class Transactions(Ownership):
    """The transactional ids by name, and which partitions of `__transaction_state` are loaded."""

    def __init__(self, config: TransactionConfig | None = None) -> None:
        self.config = config or TransactionConfig()
        self.effects: list[Effect] = []
        super().__init__(self.effects)
        self.retries: Deadlines[str] = Deadlines()  # ids whose completion could not be appended
        self._by_id: dict[str, Transaction] = {}
        self._ids = range(0)
        self._waiting_for_ids: list[Callable[[Now], None]] = []
        self._abort_at_ms = self._expire_at_ms = 0

    # -- loading and ownership --------------------------------------------------------------------------------

    def refusal(self, transactional_id: str | None) -> Error:
        """Why requests for this id cannot be served now; NONE when they can."""
        return self._served(transactional_id) if transactional_id else Error.INVALID_REQUEST

    def loaded(self, partition: int, replay: TransactionReplay, _now: Now, only: Collection[str] | None = None) -> None:
        """Load the ids from the partition's log, and complete transactions that a former coordinator decided.

        `only`: load only these ids, which were reset; the others stay unchanged.
        """
        found = replay.transactions
        only = None if only is None else self._awaited(only)
        for transactional_id in found if only is None else found.keys() & only:
            try:
                self._load(transactional_id, found[transactional_id])
            except Exception:
                self._unloadable(transactional_id)
        self._mark_loaded(partition, only)

    def _load(self, transactional_id: str, metadata: Metadata) -> None:
        txn = self._enter(transactional_id, metadata)
        if metadata.state in COMPLETED:
            self._write_markers(txn)

    def _enter(self, transactional_id: str, metadata: Metadata) -> Transaction:
        txn = Transaction(transactional_id, self.partition_of(transactional_id), metadata)
        self._by_id[transactional_id] = txn
        return txn

    def unload(self, partition: int) -> None:
        """Drop a partition that this broker no longer leads."""
        for transactional_id in [name for name, txn in self._by_id.items() if txn.partition == partition]:
            self._forget(transactional_id)
        self._drop(partition)

    def _forget(self, key: str) -> None:
        """See `Ownership`. Pending appends of the key are then answered with NOT_COORDINATOR."""
        self._by_id.pop(key, None)
        self.retries.cancel(key)

    def _is_current(self, txn: Transaction) -> bool:
        return self._by_id.get(txn.id) is txn

    # -- producer ids -----------------------------------------------------------------------------------------

    def take_ids(self, first: int, count: int, now: Now) -> None:
        """Take a block of producer ids for this coordinator alone; `count` 0 when none was available."""
        if count:
            self._ids = range(first, first + count)
        waiting, self._waiting_for_ids = self._waiting_for_ids, []
        for again in waiting:
            again(now)

    def undone(self, effect: Effect, now: Now) -> None:
        """See `Ownership`. Producers that wait for an id get a retriable error."""
        if isinstance(effect, NeedIds):
            self.take_ids(0, 0, now)
        super().undone(effect, now)

    def _take_id(self) -> int:
        producer_id, self._ids = self._ids[0], self._ids[1:]
        return producer_id

    def _with_id(self, again: Callable[[Now], None]) -> bool:
        """Whether an id is in stock; otherwise `again` is called after the next block arrives or fails."""
        if self._ids:
            return True
        self._waiting_for_ids.append(again)
        if len(self._waiting_for_ids) == 1:
            self.effects.append(NeedIds())
        return False

    # -- InitProducerId ---------------------------------------------------------------------------------------

    def init_producer_id(self, producer: Producer, timeout_ms: int, token: Any, now: Now) -> None:
        """Start a producer: fence earlier ones, abort their open transaction; answers an InitResult."""
        self._init(producer, timeout_ms, token, now, may_wait=True)

    def _init(self, producer: Producer, timeout_ms: int, token: Any, now: Now, may_wait: bool) -> None:
        try:
            self._try_init(producer, timeout_ms, token, now, may_wait)
        except Exception:
            self._answer_fault(token, InitResult(FAULT), producer.transactional_id, now)

    def _try_init(self, producer: Producer, timeout_ms: int, token: Any, now: Now, may_wait: bool) -> None:
        def again(later: Now) -> None:
            self._init(producer, timeout_ms, token, later, may_wait=False)

        name = producer.transactional_id
        is_allowed = not name or 0 < timeout_ms <= self.config.max_timeout_ms
        error = self.refusal(name) if is_allowed else Error.INVALID_TRANSACTION_TIMEOUT
        txn = self._by_id.get(name)
        if not error and self._needs_id(txn, producer) and not self._ids:
            if may_wait:
                self._with_id(again)
                return
            error = Error.COORDINATOR_NOT_AVAILABLE
        if not error and txn is None:
            txn = self._enter(name, transaction.new(self._take_id(), timeout_ms, now.wall_ms))
        if error or txn is None:
            self.effects.append(Answer(token, InitResult(error)))
        else:
            self._init_existing(txn, producer, timeout_ms, token, now)

    @staticmethod
    def _needs_id(txn: Transaction | None, producer: Producer) -> bool:
        if txn is None:
            return True
        m = txn.metadata
        return m.is_exhausted and INIT.get(m.state) is State.EMPTY and producer.epoch in (NO_EPOCH, m.epoch)

    def _init_existing(self, txn: Transaction, producer: Producer, timeout_ms: int, token: Any, now: Now) -> None:
        m = txn.metadata
        step: State | Error = Error.CONCURRENT_TRANSACTIONS if txn.pending is not None else INIT[m.state]
        if txn.pending is None and not transaction.may_init(m, producer.id, producer.epoch):
            step = Error.PRODUCER_FENCED
        if isinstance(step, Error):
            self.effects.append(Answer(token, InitResult(step)))
        elif step is State.PREPARE_EPOCH_FENCE:
            # The answer never has the fencing epoch: the producer retries until the abort is complete.
            self._fence(txn, now, lambda e, _: self._answer_init(token, e or Error.CONCURRENT_TRANSACTIONS))
        else:
            self._start(txn, producer, timeout_ms, token, now)

    def _start(self, txn: Transaction, producer: Producer, timeout_ms: int, token: Any, now: Now) -> None:
        m = txn.metadata
        target: Metadata | Error
        if self._needs_id(txn, producer):
            target = transaction.rotated(m, self._take_id(), producer.epoch, timeout_ms, now.wall_ms)
        elif m.is_exhausted and producer.epoch != m.last_epoch:
            target = Error.PRODUCER_FENCED
        else:
            target = transaction.bumped(m, producer.epoch, timeout_ms, now.wall_ms)
        if isinstance(target, Error):
            self.effects.append(Answer(token, InitResult(target)))
            return
        self._store(txn, target, lambda error, _: self._answer_init(token, error, txn.metadata))

    def _answer_init(self, token: Any, error: Error, m: Metadata | None = None) -> None:
        result = InitResult(error) if error or m is None else InitResult(error, m.producer_id, m.epoch)
        self.effects.append(Answer(token, result))

    # -- AddPartitionsToTxn, AddOffsetsToTxn ------------------------------------------------------------------

    def add(self, producer: Producer, partitions: Iterable[TopicPartition], token: Any, now: Now) -> None:
        """Add partitions to the transaction; the first ones start it; answers an Error."""
        try:
            self._add(producer, partitions, token, now)
        except Exception:
            self._answer_fault(token, FAULT, producer.transactional_id, now)

    def _add(self, producer: Producer, partitions: Iterable[TopicPartition], token: Any, now: Now) -> None:
        requested = frozenset(partitions)
        txn, error = self._find(producer)
        if txn is None or error:
            self.effects.append(Answer(token, error))
            return
        m = txn.metadata
        step: State | Error = Error.CONCURRENT_TRANSACTIONS if txn.pending is not None else ADD[m.state]
        if isinstance(step, State) and m.state is State.ONGOING and requested <= m.partitions:
            step = Error.NONE  # nothing new
        if isinstance(step, Error):
            self.effects.append(Answer(token, step))
            return
        target = transaction.added(m, requested, now.wall_ms)
        self._store(txn, target, lambda error, _: self.effects.append(Answer(token, error)))

    def verify(self, producer: Producer, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Error]:
        """Whether the partitions are part of the producer's transaction (KIP-890); changes nothing."""
        requested = list(partitions)
        txn, error = self._find(producer)
        if txn is None or error:
            return dict.fromkeys(requested, error)
        m = txn.metadata
        if m.state in COMPLETED:
            return dict.fromkeys(requested, Error.CONCURRENT_TRANSACTIONS)
        return {tp: Error.NONE if tp in m.partitions else Error.TRANSACTION_ABORTABLE for tp in requested}

    def _find(self, producer: Producer) -> tuple[Transaction | None, Error]:
        """The transactional id of a producer, or the error if it is unknown or fenced."""
        error = self.refusal(producer.transactional_id)
        txn = self._by_id.get(producer.transactional_id)
        if error:
            return None, error
        if txn is None or txn.metadata.producer_id != producer.id or txn.metadata.epoch == NO_EPOCH:
            return None, Error.INVALID_PRODUCER_ID_MAPPING
        if txn.metadata.epoch != producer.epoch:
            return None, Error.PRODUCER_FENCED
        return txn, Error.NONE

    # -- EndTxn -----------------------------------------------------------------------------------------------

    def end(self, producer: Producer, commit: bool, token: Any, now: Now) -> None:
        """Commit or abort the transaction; answers an Error once the decision is in the log; markers follow."""
        try:
            self._end(producer, commit, token, now)
        except Exception:
            self._answer_fault(token, FAULT, producer.transactional_id, now)

    def _end(self, producer: Producer, commit: bool, token: Any, now: Now) -> None:
        txn, error = self._find(producer)
        if txn is None or error:
            self.effects.append(Answer(token, error))
            return
        table = COMMIT if commit else ABORT
        step = Error.CONCURRENT_TRANSACTIONS if txn.pending is not None else table[txn.metadata.state]
        if isinstance(step, Error):
            self.effects.append(Answer(token, step))
            return
        self._decide(txn, step, now, lambda error, _: self.effects.append(Answer(token, error)))

    def _decide(self, txn: Transaction, state: State, now: Now, then: Then) -> None:
        def stored(error: Error, later: Now) -> None:
            if not error:
                self._write_markers(txn)
            then(error, later)

        self._store(txn, transaction.ended(txn.metadata, state, now.wall_ms), stored)

    def _fence(self, txn: Transaction, now: Now, then: Then) -> None:
        """Abort an ongoing transaction without its producer, under an epoch that the producer does not have."""

        def stored(error: Error, later: Now) -> None:
            txn.failed_fence = bool(error)
            then(error, later)

        # The bumped epoch counts at once, in the log or not: the producer must not end a transaction under abort.
        txn.metadata = transaction.fenced(txn)
        self._decide(txn, State.PREPARE_ABORT, now, stored)

    def _write_markers(self, txn: Transaction) -> None:
        m = txn.metadata
        commit = m.state is State.PREPARE_COMMIT
        self.effects.append(Markers(txn.id, m.producer_id, m.epoch, commit, m.partitions))

    def markers_written(self, markers: Markers, now: Now) -> None:
        """Complete the transaction after every marker is in its partition."""
        self._each([markers.transactional_id], lambda txn: self._marked(txn, markers, now), now)

    def _marked(self, txn: Transaction, markers: Markers, now: Now) -> None:
        if txn.pending is not None or txn.metadata.state not in COMPLETED:
            return
        if (txn.metadata.producer_id, txn.metadata.epoch) == (markers.producer_id, markers.epoch):
            self._complete(txn, now)

    def _complete(self, txn: Transaction, now: Now) -> None:
        def stored(error: Error, later: Now) -> None:
            if error and self._is_current(txn):
                log.warning("transactional id %s: cannot write its completion: %s", txn.id, error.name)
                self.retries.set(txn.id, later.steady_ms + self.config.retry_ms)

        self._store(txn, transaction.completed(txn.metadata, now.wall_ms), stored)

    # -- the log ----------------------------------------------------------------------------------------------

    def _store(self, txn: Transaction, target: Metadata, then: Then) -> None:
        txn.prepare(target)
        self._append(txn, records.value(target), target, then)

    def _append(self, txn: Transaction, value: bytes | None, target: Metadata, then: Then) -> None:
        def done(error: Error, _position: int, now: Now) -> None:
            if not self._is_current(txn):
                then(Error.NOT_COORDINATOR, now)
                return
            txn.settle(None if error else target)
            then(for_transaction(error), now)

        self.effects.append(Append(txn.id, [(records.key(txn.id), value)], done))

    # -- time -------------------------------------------------------------------------------------------------

    def tick(self, now: Now) -> None:
        """Abort timed-out transactions, expire unused ids, retry failed completions."""
        self._each(self.retries.expired(now.steady_ms), lambda txn: self._complete_again(txn, now), now)
        if now.steady_ms >= self._abort_at_ms:
            self._abort_at_ms = now.steady_ms + self.config.abort_interval_ms
            self._each(list(self._by_id), lambda txn: self._abort_timed_out(txn, now), now)
        if now.steady_ms >= self._expire_at_ms:
            self._expire_at_ms = now.steady_ms + self.config.expiry_interval_ms
            self._each(list(self._by_id), lambda txn: self._expire(txn, now), now)
        self._reload_due(now)

    def _each(self, names: Iterable[str], do: Callable[[Transaction], None], now: Now) -> None:
        """Call `do` for each existing id; a fault of one does not affect the others."""
        for name in names:
            txn = self._by_id.get(name)
            if txn is not None:
                try:
                    do(txn)
                except Exception:
                    self._fault(name, now)

    def next_ms(self) -> int:
        """The time of the next `tick`."""
        dues = (self._abort_at_ms, self._expire_at_ms, self.retries.next_ms(), self._reload_at.next_ms())
        return min(due for due in dues if due is not None)

    def _complete_again(self, txn: Transaction, now: Now) -> None:
        if txn.pending is None and txn.metadata.state in COMPLETED:
            self._complete(txn, now)

    def _abort_timed_out(self, txn: Transaction, now: Now) -> None:
        m = txn.metadata
        if txn.pending is None and m.state is State.ONGOING and m.started_ms + m.timeout_ms < now.wall_ms:
            log.info("transactional id %s: aborted after %d ms", txn.id, m.timeout_ms)
            self._fence(txn, now, lambda error, _: None)

    def _expire(self, txn: Transaction, now: Now) -> None:
        m = txn.metadata
        if txn.pending is None and m.state in EXPIRES and m.updated_ms <= now.wall_ms - self.config.expiration_ms:
            self._write_tombstone(txn)

    def _write_tombstone(self, txn: Transaction) -> None:
        def stored(error: Error, _now: Now) -> None:
            if not error:
                log.info("transactional id %s: expired", txn.id)
                del self._by_id[txn.id]

        target = txn.prepare(txn.metadata._replace(state=State.DEAD, partitions=frozenset()))
        self._append(txn, None, target, stored)

    # -- queries ----------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> tuple[Error, Summary]:
        """DescribeTransactions for one transactional id."""
        error = self.refusal(transactional_id)
        txn = self._by_id.get(transactional_id)
        if not error and (txn is None or txn.metadata.state is State.DEAD):
            error = Error.TRANSACTIONAL_ID_NOT_FOUND
        if error or txn is None:
            return error, Summary(transactional_id, "")
        return error, _summary(txn)

    def listing(
        self, states: Iterable[str], producer_ids: Iterable[int], longer_ms: int, now: Now
    ) -> tuple[Error, list[str], list[Summary]]:
        """ListTransactions: (error, unknown state names, ids that pass all filters); an empty filter passes all."""
        if self.is_loading:
            return Error.COORDINATOR_LOAD_IN_PROGRESS, [], []
        names, ids = list(states), set(producer_ids)
        selected = {BY_TITLE[name] for name in names if name in BY_TITLE}
        found = [
            _summary(txn)
            for txn in self._by_id.values()
            if txn.metadata.state is not State.DEAD
            and (not ids or txn.metadata.producer_id in ids)
            and (not names or txn.metadata.state in selected)
            and (longer_ms < 0 or now.wall_ms - txn.metadata.started_ms > longer_ms)
        ]
        return Error.NONE, [name for name in dict.fromkeys(names) if name not in BY_TITLE], found

    def get(self, transactional_id: str) -> Transaction | None:
        """The transactional id itself, for tests."""
        return self._by_id.get(transactional_id)

    def __len__(self) -> int:
        return len(self._by_id)


def _summary(txn: Transaction) -> Summary:
    m = txn.metadata
    return Summary(txn.id, m.state.title, m.producer_id, m.epoch, m.timeout_ms, m.started_ms, m.partitions)
