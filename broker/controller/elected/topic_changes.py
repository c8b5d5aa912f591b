"""Handles other writers' changes of topics in the elected controller: new topics, partitions, ISRs."""

from __future__ import annotations

from odradek.broker.controller.elected.leader_election import Elections
from odradek.broker.controller.elected.reassignment import Reassignments
from odradek.broker.controller.elected.state_loader import LoadedState
from odradek.broker.controller.elected.term import Term
from odradek.broker.controller.elected.topic_deletion import Deletions
from odradek.cluster.tree.znodes import Partition


class Topics:
    """One controller term. Methods raise TreeUnavailable."""

    def __init__(
        self,
        term: Term,
        loaded: LoadedState,
        elections: Elections,
        reassignments: Reassignments,
        deletions: Deletions,
    ) -> None:
        self._term = term
        self._loaded = loaded
        self._elections = elections
        self._reassignments = reassignments
        self._deletions = deletions

    def changed(self) -> None:
        """Topics were created or deleted; or a malformed node is valid now, and brokers may have logs of its topic."""
        state, names = self._loaded.context, set(self._loaded.topics())
        for name in state.topics.keys() - names:
            state.drop_topic(name)
        found = self._loaded.read_topics(sorted(names - state.topics.keys()))
        self._deletions.readable(found)  # first: a topic being deleted gets no states, and so no leaders
        known = [partition for partition in state.partitions(found) if partition in state.partition_states]
        for name in found:
            self._make_new(name)
        self._term.broker_requests.send_changes(known)
        if known:
            self._term.replace_failed()

    def topic_changed(self, name: str) -> None:
        """A topic got more partitions or another assignment; or it was deleted, and perhaps recreated already."""
        state = self._loaded.context
        if name not in state.topics:  # a malformed node may be valid now
            self.changed()
            return
        if self._loaded.read_topics([name]):
            self._make_new(name)
        elif name not in state.malformed_topics:
            state.drop_topic(name)
            self.changed()

    def make_all_new(self) -> None:
        """Elect leaders for new partitions; those whose replicas are all offline wait for one."""
        for name in list(self._loaded.context.topics):
            self._make_new(name)

    def _make_new(self, name: str) -> None:
        self._term.settle(lambda: self._loaded.context.new_partitions(name), new=True)

    def isrs_changed(self) -> None:
        """Leaders have changed their ISRs: inform every broker."""
        named = self._loaded.take_notices(self._term.fenced.epoch_check)
        changed = [partition for partition in named if partition in self._loaded.context.partition_states]
        self._loaded.read_states(changed)
        if changed:
            self._term.broker_requests.send_metadata(changed)
            self._reassignments.advance(changed)
        if any(self._has_dead_member(partition) for partition in changed):
            self._term.replace_failed()
        for broker in self._shutting_down_members(changed):
            self._elections.replace(broker)

    def _has_dead_member(self, partition: Partition) -> bool:
        """Whether the leader, not yet informed, has added a dead broker to the ISR."""
        state = self._loaded.context
        now = state.partition_states.get(partition)
        return now is not None and bool(set(now.isr) - state.live_replicas(partition))

    def _shutting_down_members(self, changed: list[Partition]) -> set[int]:
        """Stopping brokers that are in an ISR again, because a leader was not yet informed."""
        state = self._loaded.context
        states = [state.partition_states[partition] for partition in changed if partition in state.partition_states]
        return {broker for now in states for broker in now.isr} & state.shutting_down
