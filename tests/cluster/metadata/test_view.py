"""A broker's view of the cluster while the controller sends the state in several requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.controller.replicas import controller_requests
from odradek.broker.controller.replicas.controller_requests import ControllerRequests
from odradek.cluster.metadata.view import ControllerTerm, PartitionUpdate, View

OFFICE = ControllerTerm(0, 1, -1)


def told(number: int, topic_id: int = 1) -> PartitionUpdate:
    return PartitionUpdate("t", bytes([topic_id]) * 16, number, 1, 0, 0, [0, 1], 0, [0, 1])


class NoLogs:
    """Replicas without logs: `become` enters them into the view as the real one does."""

    def __init__(self, view: View) -> None:
        self._view = view

    def become(self, one: PartitionUpdate) -> int:
        self._view.apply(one, incomplete=True)
        return 0

    def replace_topic(self, one: PartitionUpdate) -> None:
        pass


def shown(view: View) -> int | None:
    """The number of partitions of the topic that all processes know."""
    topic = view.snapshot(1, {}).topics.get("t")
    return None if topic is None else len(topic)


def test_new_topic_is_published_whole() -> None:
    view = View(0, "c")
    replicas: Any = NoLogs(view)
    instance = ControllerRequests(view, replicas, lambda: None)

    def lead(one: PartitionUpdate) -> int | None:
        instance.leader_and_isr(OFFICE, [one], done)
        return carried_out()

    def know(count: int) -> int | None:
        instance.update_metadata(OFFICE, [told(number) for number in range(count)], [], done)
        return carried_out()

    def done(error: int, errors: Any) -> None:
        assert not error and not errors

    def carried_out() -> int | None:
        while instance.waiting:
            instance.tick()
        return shown(view)

    assert lead(told(1)) is None  # one of four; this broker has no replica of the others
    assert len(view.topics["t"]["partitions"]) == 2
    assert know(4) == 4
    assert lead(told(1)) == 4
    assert lead(told(5)) == 4, "added partitions are shown once all are known"
    assert know(7) == 7
    assert lead(told(0, topic_id=2)) is None  # recreated under the same name


def test_incomplete_topic_is_not_published(monkeypatch: pytest.MonkeyPatch) -> None:
    view = View(0, "c")
    replicas: Any = NoLogs(view)
    instance, now = ControllerRequests(view, replicas, lambda: None), [0.0]
    monkeypatch.setattr(controller_requests, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(controller_requests, "_SLICE_S", 0.0)  # each step is a turn
    seen = []
    for count in (3, 5):
        instance.update_metadata(OFFICE, [told(number) for number in range(count)], [], lambda *_: None)
        while instance.waiting:
            seen.append(shown(view))
            instance.tick()
        assert shown(view) == count
    assert set(seen) == {None, 3}


def test_last_request_sets_offline_replicas() -> None:
    view = View(0, "c")
    for said, known in (([1], [1]), (None, [1]), ([], [])):
        view.apply(told(0)._replace(offline=said))
        info = view.snapshot(1, {}).partition("t", 0)
        assert info is not None
        assert list(info.offline) == known
