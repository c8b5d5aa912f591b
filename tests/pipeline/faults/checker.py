"""Check by unique ids that each sent record was read once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient

from ...clients.transactions import await_stable
from ..accounting import ABORTED, CONTROL, RECORD, WAIT, account
from ..written import written

TOLD = 10


class Difference(NamedTuple):
    """Ids, in order; empty without a difference."""

    lost: tuple[str, ...]
    doubled: tuple[str, ...]  # one entry for each extra copy
    strange: tuple[str, ...]  # ids that no client sent

    def __str__(self) -> str:
        """One line for each kind, with its first ids."""
        told = [f"{len(ids)} {kind}: {', '.join(ids[:TOLD])}" for kind, ids in self._asdict().items() if ids]
        return "\n".join(told) or "no difference"


def compare(sent: Iterable[str], found: Iterable[str]) -> Difference:
    """The difference of `found` from `sent`; AssertionError if an id was sent twice: then duplicates are ambiguous."""
    expected, seen = Counter(sent), Counter(found)
    assert set(expected.values()) <= {1}, "ids were sent twice"
    strange = seen.keys() - expected.keys()
    doubled = seen - Counter(seen.keys())
    return Difference(tuple(sorted(expected.keys() - seen.keys())), _sorted(doubled), tuple(sorted(strange)))


def _sorted(ids: Counter[str]) -> tuple[str, ...]:
    return tuple(sorted(ids.elements()))


def ids(broker: Any, topic: str) -> list[str]:
    """The values of a topic for a reader with read_committed, up to the last stable offset."""
    return [(record.value or b"").decode() for record in written(broker, topic, "read_committed")]


def assert_each_once(broker: Any, topic: str, sent: Iterable[str]) -> None:
    """Wait until no transaction is open; AssertionError that names lost, duplicated and strange ids."""
    await_stable(broker, topic)
    difference = compare(sent, ids(broker, topic))
    assert not any(difference), str(difference)


def assert_accounted(broker: Any, sent: Iterable[str], *topics: str) -> None:
    """Each id is the key of one record in the topics; each of their offsets has a record, aborted or not, or marker."""
    found: list[str] = []
    for topic in topics:
        await_stable(broker, topic)
        for partition in range(partitions(broker, topic)):
            known = account(broker, topic, partition)
            assert set(known.fates) <= {RECORD, ABORTED, CONTROL}
            found += [(one.key or b"").decode() for one in known.committed]
    difference = compare(sent, found)
    assert not any(difference), str(difference)


def partitions(broker: Any, topic: str) -> int:
    """The number of its partitions."""
    return len(AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(topic, WAIT).topics[topic].partitions)
