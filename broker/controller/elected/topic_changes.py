"""Handles other writers' changes of topics in the elected controller: new topics, partitions, ISRs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.controller.elected.state_loader import LoadedState
from odradek.cluster.tree.znodes import Partition

if TYPE_CHECKING:
    from odradek.broker.controller.elected.elected import Elected


class Topics:
    """One controller term. Methods raise TreeUnavailable."""

    def __init__(self, elected: Elected, facts: LoadedState) -> None:
        self._elected = elected
        self._facts = facts

    def changed(self) -> None:
        """Topics were created or deleted; or a malformed node is valid now, and brokers may have logs of its topic."""
        state, names = self._facts.leadership, set(self._facts.topics())
        for name in state.topics.keys() - names:
            state.drop_topic(name)
        found = self._facts.read_topics(sorted(names - state.topics.keys()))
        self._elected.deletions.readable(found)  # first: a topic being deleted gets no states, and so no leaders
        known = [partition for partition in state.partitions(found) if partition in state.standings]
        for name in found:
            self._make_new(name)
        self._elected.telling.changed(known)
        if known:
            self._elected.replace_failed()

    def one_changed(self, name: str) -> None:
        """A topic got more partitions or another assignment; or it was deleted, and perhaps recreated already."""
        state = self._facts.leadership
        if name not in state.topics:  # a malformed node may be valid now
            self.changed()
            return
        if self._facts.read_topics([name]):
            self._make_new(name)
        elif name not in state.unread:
            state.drop_topic(name)
            self.changed()

    def make_all_new(self) -> None:
        """Elect leaders for new partitions; those whose replicas are all offline wait for one."""
        for name in list(self._facts.leadership.topics):
            self._make_new(name)

    def _make_new(self, name: str) -> None:
        self._elected.settle(lambda: self._facts.leadership.new_partitions(name), new=True)

    def isrs_changed(self) -> None:
        """Leaders have changed their ISRs: inform every broker."""
        named = self._facts.take_notices(self._elected.fenced.in_office)
        changed = [partition for partition in named if partition in self._facts.leadership.standings]
        self._facts.read_states(changed)
        if changed:
            self._elected.telling.show(changed)
            self._elected.moves.go_on(changed)
        if any(self._waits_for_the_dead(partition) for partition in changed):
            self._elected.replace_failed()
        for broker in self._leaving(changed):
            self._elected.elections.replace(broker)

    def _waits_for_the_dead(self, partition: Partition) -> bool:
        """Whether the leader, not yet informed, has added a dead broker to the ISR."""
        state = self._facts.leadership
        now = state.standings.get(partition)
        return now is not None and bool(set(now.isr) - state.there(partition))

    def _leaving(self, changed: list[Partition]) -> set[int]:
        """Stopping brokers that are in an ISR again, because a leader was not yet informed."""
        state = self._facts.leadership
        standings = [state.standings[partition] for partition in changed if partition in state.standings]
        return {broker for now in standings for broker in now.isr} & state.shutting_down
