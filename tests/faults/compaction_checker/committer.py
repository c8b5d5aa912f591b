"""Offsets that groups commit, with and without transactions, and delete; the coordinator must keep them."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

from ...clients.transactions import Raw, call_until, offsets_of
from ...harness.wire import Wire
from .ledger import Fate, Unit
from .writers import Transactional

GROUPS = 4  # of each committer
NONE = -1
LOADING = (14, 15, 16)  # COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
_NUMBERS = itertools.count(1)


class Committer(Transactional):
    """Commits for groups of its own, request by request.

    `allowed`: offsets that OffsetFetch may return, more than one if a commit was not answered.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.allowed: dict[str, set[int]] = {f"{self.name}-{number}": {NONE} for number in range(GROUPS)}
        self.commits = 0

    def work(self) -> None:
        """Start again after each crash, which aborts the open transaction."""
        while not self.gate.stop.is_set():
            with contextlib.suppress(OSError, EOFError, AssertionError), Wire(self.bootstrap, 20) as wire:
                self._session(Raw(wire, self.name, 120_000))

    def _session(self, raw: Raw) -> None:
        self.unit = Unit(Fate.UNKNOWN)
        while self.gate.passes(self):
            groups = self.rng.sample(sorted(self.allowed), GROUPS)
            self._commit(raw.wire, groups[0])
            if self.rng.random() < 0.1:
                self._delete_group(raw.wire, groups[1])
            self._in_transaction(raw, groups[: self.rng.randrange(1, 3)], groups[2:])

    def _in_transaction(self, raw: Raw, inside: list[str], others: list[str]) -> None:
        """Commit offsets of some groups in a transaction; commits of others meanwhile roll the log."""
        self.unit = Unit(Fate.UNKNOWN)
        numbers = {group: next(_NUMBERS) for group in inside}
        for group, number in numbers.items():
            self.allowed[group].add(number)
            assert raw.add_offsets(group) == 0
            assert raw.commit_offset(group, self.topic, number) == 0
        for group in others:
            for _ in range(self.rng.randrange(30)):
                self._commit(raw.wire, group)
        commit = self.rng.random() < 0.5
        assert raw.end(commit) == 0
        self.unit.fate = Fate.COMMITTED if commit else Fate.ABORTED
        self.committed, self.aborted = self.committed + commit, self.aborted + (not commit)
        for group, number in numbers.items():
            self.allowed[group] = {number} if commit else self.allowed[group] - {number}

    def _commit(self, wire: Wire, group: str) -> None:
        from kafka.protocol.consumer import OffsetCommitRequest as Request

        number, topic = next(_NUMBERS), Request.OffsetCommitRequestTopic
        row = topic.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=number, committed_leader_epoch=-1, committed_metadata=""
        )
        request = Request[7](
            group_id=group, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
            topics=[topic(name=self.topic, partitions=[row])],
        )  # fmt: skip
        self.allowed[group].add(number)
        answer = call_until(wire, request, lambda found: found.topics[0].partitions[0].error_code not in LOADING)
        assert answer.topics[0].partitions[0].error_code == 0, answer
        self.allowed[group] = {number}
        self.commits += 1

    def _delete_group(self, wire: Wire, group: str) -> None:
        from kafka.protocol.admin import DeleteGroupsRequest as Request

        self.allowed[group].add(NONE)
        request = Request[1](groups_names=[group])
        answer = call_until(wire, request, lambda found: found.results[0].error_code not in LOADING)
        if answer.results[0].error_code == 0:
            self.allowed[group] = {NONE}

    def differences(self) -> list[str]:
        """Offsets that OffsetFetch must not return; the gate holds this committer, outside of a transaction."""
        found = []
        with Wire(self.bootstrap, 60) as wire:
            for group, allowed in self.allowed.items():
                offset, error = offsets_of(wire, group, self.topic)
                if error or offset not in allowed:
                    found.append(
                        f"group {group} has committed {offset} (error {error}): it should be {sorted(allowed)}"
                    )
                self.allowed[group] = {offset}
        return found
