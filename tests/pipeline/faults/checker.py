"""Is what came out what went in, each once? By ids, of which no two are sent alike."""

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
    """Ids, in order; empty where all is well."""

    lost: tuple[str, ...]
    doubled: tuple[str, ...]  # once for each time too many
    strange: tuple[str, ...]  # that no client sent

    def __str__(self) -> str:
        """One line a kind, with the first of each."""
        told = [f"{len(ids)} {kind}: {', '.join(ids[:TOLD])}" for kind, ids in self._asdict().items() if ids]
        return "\n".join(told) or "no difference"


def compare(sent: Iterable[str], found: Iterable[str]) -> Difference:
    """What is wrong with `found`; AssertionError when an id was sent twice, which could not be told apart."""
    expected, seen = Counter(sent), Counter(found)
    assert set(expected.values()) <= {1}, "ids were sent twice"
    strange = seen.keys() - expected.keys()
    doubled = seen - Counter(seen.keys())
    return Difference(tuple(sorted(expected.keys() - seen.keys())), _sorted(doubled), tuple(sorted(strange)))


def _sorted(ids: Counter[str]) -> tuple[str, ...]:
    return tuple(sorted(ids.elements()))


def ids(broker: Any, topic: str) -> list[str]:
    """The values of a topic, as a reader with read_committed has them; what is undecided and after it is not there."""
    return [(record.value or b"").decode() for record in written(broker, topic, "read_committed")]


def assert_each_once(broker: Any, topic: str, sent: Iterable[str]) -> None:
    """AssertionError that tells what was lost, doubled or is strange; once nothing is undecided any more."""
    await_stable(broker, topic)
    difference = compare(sent, ids(broker, topic))
    assert not any(difference), str(difference)


def assert_accounted(broker: Any, sent: Iterable[str], *topics: str) -> None:
    """Each id is a key once in all of the topics, and each of their offsets is a record's, aborted, or a marker's."""
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
    """How many it has."""
    return len(AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(topic, WAIT).topics[topic].partitions)
