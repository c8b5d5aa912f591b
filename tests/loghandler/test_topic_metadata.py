"""Records whose partition is gone go to others only if no partition of the same topic may have them.

The test plays the cluster: a topic that is created again at any time, brokers that are behind, lost answers.
"""

from __future__ import annotations

from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from odradek.loghandler.topic_metadata import NO_ID, TopicMetadata

LEADER = ("localhost", 9092)
OUTCOMES = st.sampled_from([(True, True), (True, False), (True, False), (False, True), (False, False)])
"""Of an attempt: whether it stores the records, and whether the answer arrives."""


class Clusters(RuleBasedStateMachine):
    """One part of records is under way at a time. `stored`: the topics, by number, in which a partition has them."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = TopicMetadata()
        self.sizes = [3]  # partitions of every topic of that name, the last one is there
        self.stored: set[int] = set()
        self.partition: int | None = None  # of the part, once it was divided
        self.learned = self.divided_in = 1  # that many topics there were when metadata came, and of this when divided

    @initialize(ids=st.booleans())
    def choose_brokers(self, ids: bool) -> None:
        self.ids = ids
        self.learn(0)

    @rule(partitions=st.integers(1, 4))
    def create_again(self, partitions: int) -> None:
        self.sizes.append(partitions)

    @rule(more=st.integers(1, 2))
    def add_partitions(self, more: int) -> None:
        self.sizes[-1] += more

    @rule(fewer=st.integers(0, 2))
    def learn(self, fewer: int) -> None:
        """From a broker that does not know the newest partitions yet, which only one of the same topic may not."""
        fewer = fewer if self.divided_in == len(self.sizes) else 0
        known = range(max(1, self.sizes[-1] - fewer))
        self.learned = len(self.sizes)
        self.metadata.learn(UUID(int=len(self.sizes)) if self.ids else NO_ID, dict.fromkeys(known, LEADER))

    @precondition(lambda self: self.partition and self.divided_in == len(self.sizes))
    @rule()
    def learn_without_the_partition(self) -> None:
        """From a broker that does not know the partition of the records yet."""
        known = range(self.partition or 0)
        self.learned = len(self.sizes)
        self.metadata.learn(UUID(int=len(self.sizes)) if self.ids else NO_ID, dict.fromkeys(known, LEADER))

    @rule(number=st.integers(0, 5), outcomes=st.lists(OUTCOMES, min_size=1, max_size=3))
    def send_again(self, number: int, outcomes: list[tuple[bool, bool]]) -> None:
        for stores, answers in outcomes:
            self.send(number, stores, answers)

    def send(self, number: int, stores: bool, answers: bool) -> None:
        """Divide the records if they are not yet, or if their partition is gone and they may; then send them."""
        leaders = self.metadata.leaders
        if self.partition is not None and self.partition not in leaders:
            if not self.metadata.may_divide_again():
                return
            assert len(self.sizes) - 1 not in self.stored, "two partitions of this topic would have the records"
            self.partition = None
        if self.partition is None:
            self.partition, self.divided_in = number % len(leaders), self.learned
            self.metadata.divided()
        self.metadata.attempt()
        stores = stores and self.partition < self.sizes[-1]
        if stores:
            self.stored.add(len(self.sizes) - 1)
        if answers and stores:
            self.settle()
        elif answers:
            self.metadata.not_stored()

    @rule()
    def settle(self) -> None:
        """The records are acknowledged, or given up; others follow."""
        self.metadata.settled()
        self.stored, self.partition = set(), None


TestClusters = Clusters.TestCase


def divided(topic: int) -> TopicMetadata:
    made = TopicMetadata()
    made.learn(UUID(int=topic), {0: LEADER, 1: LEADER})
    made.divided()
    return made


def test_records_that_were_not_sent_can_go_to_other_partitions() -> None:
    made = divided(0)
    assert made.may_divide_again()
    made.attempt()
    made.not_stored()
    assert made.may_divide_again()


def test_lost_answer_keeps_records_where_they_were_sent_though_a_later_attempt_stored_nothing() -> None:
    made = divided(7)
    made.attempt()
    made.attempt()
    made.not_stored()
    assert not made.may_divide_again()


def test_records_of_a_deleted_topic_can_go_to_other_partitions_of_its_successor() -> None:
    made = divided(7)
    made.attempt()
    made.learn(UUID(int=8), {0: LEADER})
    assert made.may_divide_again()


def test_brokers_without_topic_ids_cannot_say_that_a_topic_was_created_again() -> None:
    made = divided(0)
    made.attempt()
    made.learn(NO_ID, {0: LEADER})
    assert not made.may_divide_again()
