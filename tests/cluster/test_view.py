"""What a broker shows of the cluster, while the controller tells of it in several orders."""

from __future__ import annotations

from typing import Any

from odradek.broker.orders import Orders
from odradek.cluster.view import Office, Told, View

OFFICE = Office(0, 1, -1)


def told(number: int, topic_id: int = 1) -> Told:
    return Told("t", bytes([topic_id]) * 16, number, 1, 0, 0, [0, 1], 0, [0, 1])


class NoLogs:
    """Replicas without logs: `become` as the real one enters it into the view."""

    def __init__(self, view: View) -> None:
        self._view = view

    def become(self, one: Told) -> int:
        self._view.tell(one, in_part=True)
        return 0

    def give_way(self, one: Told) -> None:
        pass


def shown(view: View) -> int | None:
    """How many partitions of the topic everybody here knows of."""
    topic = view.snapshot(1, {}).topics.get("t")
    return None if topic is None else len(topic)


def test_a_new_topic_is_shown_whole() -> None:
    view = View(0, "c")
    replicas: Any = NoLogs(view)
    orders = Orders(view, replicas, lambda: None)

    def done(error: int, errors: Any) -> None:
        assert not error and not errors

    orders.lead_and_follow(OFFICE, [told(1)], done)  # of four; this broker has no replica of the others
    assert (shown(view), len(view.topics["t"]["partitions"])) == (None, 2)
    orders.know(OFFICE, [told(number) for number in range(4)], [], done)
    assert shown(view) == 4
    orders.lead_and_follow(OFFICE, [told(1)], done)
    assert shown(view) == 4
    orders.lead_and_follow(OFFICE, [told(0, topic_id=2)], done)  # made anew under the same name
    assert shown(view) is None


def test_offline_replicas_are_what_was_said_last() -> None:
    view = View(0, "c")
    for said, known in (([1], [1]), (None, [1]), ([], [])):
        view.tell(told(0)._replace(offline=said))
        info = view.snapshot(1, {}).partition("t", 0)
        assert info is not None
        assert list(info.offline) == known
