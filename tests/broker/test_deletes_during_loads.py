"""Deletions of topics and groups while the coordinator loads `__consumer_offsets`, in random order.

Loads restart repeatedly: the leadership is lost and regained, the coordinator dies, one group has a fault. A client
must get the last committed offset, or no offset after its topic or group was deleted. If the tombstones of a deleted
topic were not written before the leadership or the process was lost, the offsets return, as with Apache Kafka, whose
next coordinator does not know of the deletion; until then no client sees them again.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from odradek.broker.coordinator import internal_topic
from odradek.broker.coordinator.controller_client import ControllerClient
from odradek.broker.coordinator.group_coordinator import GroupCoordinator
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.groups.events import Answer, Commit
from odradek.groups.ownership import RELOAD_PAUSE_MS
from odradek.groups.records import offset_key, offset_value
from odradek.ipc import roles
from odradek.protocol.errors import Error
from odradek.workers.dispatch.catalog import Catalog

from .coordinator.test_group_coordinator import OTHER, OWN, Place, value

GROUPS, TOPICS = ("g", "h"), ("t", "u")
BATCH = 100  # the records of one step

Key = tuple[str, str]  # group, topic


class Steady:
    """A clock by which each step of a load ends after its first batches."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        self._now += internal_topic.SLICE_S * 0.6
        return self._now


class SlowPlace(Place):
    """Loads run one step in each turn."""

    def begin_again(self, folder: Path) -> None:
        """The coordinator dies, and another one starts."""
        self.catalog.log.close()
        self.catalog = Catalog(self.shared, folder / "run", roles.COORDINATOR, self.config, self.config.log_dirs)
        row = self.shared.processes.row(roles.COORDINATOR)
        link = ControllerClient(folder / "run")
        self.coordinator = GroupCoordinator(self.catalog, self.config, link, row, self.now)
        self.groups = self.coordinator.machine
        self.answers.clear()
        self.catalog.follow()
        self.coordinator.follow(Snapshot.empty(self.config), self.catalog.snapshot, self.now)

    def turn(self, ms: int = 0) -> None:
        self.now = self.now._replace(steady_ms=self.now.steady_ms + ms, wall_ms=self.now.wall_ms + ms)
        if self.coordinator.topic.is_loading:
            self.coordinator.topic.step(self.now)
        self.coordinator.turn(self.now, self.answers.append)


class Known:
    """The allowed answers for one group's offset in one topic."""

    def __init__(self) -> None:
        self.values = {-1}
        self.back: set[int] = set()  # offsets that may return with the next load
        self.last = 0  # the number of the decisive event

    def sent(self, number: int, offset: int) -> None:
        """The offset is a possible answer from now on."""
        self.values.add(offset)
        self.last = number

    def done(self, number: int, offset: int) -> None:
        """The offset is the only answer, unless a later event was sent."""
        self.values = {offset} if self.last == number else self.values | {offset}

    def lost(self) -> None:
        """Unwritten changes are lost."""
        self.values |= self.back
        self.back = set()


class Loads(RuleBasedStateMachine):
    """One partition, two groups, two topics."""

    @initialize(whole=st.booleans())
    def start(self, whole: bool) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.place = SlowPlace(Path(self.folder.name))
        self.known = {(group, topic): Known() for group in GROUPS for topic in TOPICS}
        self.number = self.epoch = 0
        self.leads = self.alone = True
        self.topics = list(TOPICS)
        self.place.publish(-1)
        self._lead(alone=True)
        for offset in range(0 if whole else 3 * BATCH):
            self.place.write_record(offset_key("other", "t", 0), offset_value(value(offset)))
        self._publish()
        while not self._served(GROUPS[0]):
            self._turn()
        for group in GROUPS:
            self.commit(group, 0)

    def _next(self) -> int:
        self.number += 1
        return self.number

    def _lead(self, alone: bool) -> None:
        self.epoch, self.leads, self.alone = self.epoch + 1, True, alone
        self.place.lead(self.epoch, isr=(OWN,) if alone else (OWN, OTHER))

    def _publish(self) -> None:
        self.place.publish(OWN if self.leads else OTHER, others=tuple(self.topics))
        self._hear()

    def _turn(self, ms: int = 0) -> None:
        self.place.turn(ms)
        self._hear()

    def _hear(self) -> None:
        answers, self.place.answers = self.place.answers, []
        for answer in answers:
            self._answered(answer)
        for (group, _), one in self.known.items():
            if self.leads and self._served(group):
                one.back = set()  # the log has the tombstones

    def _answered(self, answer: Answer) -> None:
        what, number, name = answer.token
        if what == "commit":
            (error,) = answer.result.values()
            if error is Error.NONE:
                self.known[name].done(number, number)
        elif answer.result is Error.NONE:
            for topic in TOPICS:
                self.known[name, topic].done(number, -1)
        elif answer.result is Error.GROUP_ID_NOT_FOUND:
            assert all(-1 in self.known[name, topic].values for topic in TOPICS)

    # -- clients and administrators

    @rule(group=st.sampled_from(GROUPS), at=st.integers(0, 1))
    def commit(self, group: str, at: int) -> None:
        if self.topics:
            topic, number = self.topics[at % len(self.topics)], self._next()
            self.known[group, topic].sent(number, number)
            request = Commit(group, "", None, -1, {(topic, 0): value(number)})
            self.place.groups.commit(request, ("commit", number, (group, topic)), self.place.now)
            self._turn()

    @rule(group=st.sampled_from(GROUPS))
    def delete_group(self, group: str) -> None:
        number = self._next()
        for topic in TOPICS:
            self.known[group, topic].sent(number, -1)
        self.place.groups.delete_group(group, ("delete", number, group), self.place.now)
        self._turn()

    @rule(at=st.integers(0, 1), again=st.booleans())
    def delete_topic(self, at: int, again: bool) -> None:
        """`again`: a topic with this name is created at once."""
        if not self.topics:
            return
        topic = self.topics.pop(at % len(self.topics))
        for group in GROUPS:
            self._forgotten(self.known[group, topic])
        self._publish()
        if again:
            self.make_topics()

    def _forgotten(self, one: Known) -> None:
        one.back |= one.values
        certain = self.leads and self.alone
        one.values = {-1} if certain else one.values | {-1}
        one.last = self._next()

    @rule()
    def make_topics(self) -> None:
        self.topics = list(TOPICS)
        self._publish()

    # -- the cluster

    @rule(alone=st.booleans(), told=st.booleans())
    def lose_and_win(self, alone: bool, told: bool) -> None:
        """Another broker leads, with or without this one's knowledge, and then this one again."""
        self.epoch += 1
        self.place.follow(self.epoch)
        self.leads = False
        if told:
            self._publish()
        self._lead(alone)
        for one in self.known.values():
            one.lost()
        self._publish()

    @rule(dies=st.booleans(), at=st.integers(0, 1), again=st.booleans())
    def lose_topic_during_load(self, dies: bool, at: int, again: bool) -> None:
        if dies:
            self.die()
        else:
            self.lose_and_win(alone=True, told=False)
        self.delete_topic(at, again)

    @precondition(lambda self: not self.alone)
    @rule()
    def all_have_it(self) -> None:
        self.place.partition.slot.update(hw=self.place.end())
        self._turn()

    @rule()
    def other_epoch(self) -> None:
        """The leader continues in another epoch; the other replica is out of the ISR."""
        self._lead(alone=True)
        self._publish()

    @rule(group=st.sampled_from(GROUPS))
    def fault(self, group: str) -> None:
        self.place.groups.reset(group, self.place.now)
        self._turn()

    @rule()
    def die(self) -> None:
        self.place.begin_again(Path(self.folder.name))
        for one in self.known.values():
            one.lost()

    @rule(ms=st.sampled_from([0, 1, RELOAD_PAUSE_MS]))
    def turn(self, ms: int) -> None:
        self._turn(ms)

    # -- answers

    def _served(self, group: str) -> bool:
        return self.place.groups.fetch(group, [], False)[0] is Error.NONE

    @invariant()
    def told(self) -> None:
        for (group, topic), one in self.known.items():
            error, found = self.place.groups.fetch(group, [(topic, 0)], False)
            if error is Error.NONE:
                there = found[topic, 0][0]
                offset = -1 if there is None else there.offset
                assert offset in one.values, (group, topic, offset, one.values)

    def teardown(self) -> None:
        if not hasattr(self, "place"):
            return
        try:
            self._lead(alone=True)
            self._publish()
            for _ in range(20):
                self._turn(RELOAD_PAUSE_MS)
            assert not self.place.coordinator.topic.is_loading
            assert all(map(self._served, GROUPS))
            self.told()
        finally:
            self.place.close()
            self.folder.cleanup()


@pytest.fixture(autouse=True)
def slow_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_topic, "time", Steady())


def check(examples: int, steps: int) -> None:
    quiet = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    run(Loads, settings=settings(max_examples=examples, stateful_step_count=steps, suppress_health_check=quiet))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_deletes_during_loads() -> None:
    check(40, 30)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_deletes_during_loads() -> None:
    check(2000, 60)
