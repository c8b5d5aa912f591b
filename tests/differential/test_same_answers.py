"""The same sequences of requests to Apache Kafka 3.9.1 and to us: the same answers, but for what `reasons` lists.

`ODRADEK_DIFFERENTIAL_SEED=n` draws others, `ODRADEK_DIFFERENTIAL_SEQUENCES=n` more or less of them. Each sequence has
topics, groups and transactional ids of its own; it ends with the first difference.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest
from odradek.protocol import interbroker
from odradek.workers import api

from ..clients.admin import create_named, leads, topic_id
from ..fuzz.sequences import script
from ..harness.apache import Apache
from ..harness.broker import Broker
from ..harness.process import wait_until
from ..harness.wire import Wire
from . import families
from .families import Family
from .pair import Address, Difference, Pair
from .reasons import reason

pytestmark = pytest.mark.needs("java-3.9.1")

SEED = os.environ.get("ODRADEK_DIFFERENTIAL_SEED", "1")
LENGTH = 20
WAITING = frozenset({"JoinGroup", "SyncGroup"})
OURS = {
    "offsets_topic_num_partitions": 4, "transaction_state_log_num_partitions": 2,
    "group_initial_rebalance_delay_ms": 0, "group_min_session_timeout_ms": 100,
}  # fmt: skip


class Brokers:
    """Both, with connections to make topics."""

    def __init__(self, ours: Broker, theirs: Apache) -> None:
        self.wires = Wire(ours.bootstrap, 60), Wire(theirs.bootstrap, 60)
        self.pair = Pair(_address(ours.bootstrap), _address(theirs.bootstrap), families.LEARNS, WAITING)
        self._keys = {row.name: key for key, row in api.load_rows().items()}
        self._versions = _common(*self.wires)
        for wire in self.wires:
            for kind in (0, 1):
                wait_until(lambda wire=wire, kind=kind: _coordinates(wire, kind), 60)

    def play(self, family: Family, number: int) -> tuple[int, Difference | None]:
        """One sequence."""
        names = [f"{stem}-{family.name}-{number}" for stem in "tu"]
        for wire in self.wires:
            for partitions, name in enumerate(names, 1):
                create_named(wire, name, partitions)
                wait_until(lambda wire=wire, name=name, last=partitions - 1: leads(wire, name, last), 30)
        apis = families.apis(family, self._versions, self._keys)
        played = script(f"{SEED}/{family.name}/{number}", apis, families.clients(number), LENGTH)
        first, second = (families.pools(names, [topic_id(wire, name).bytes for name in names]) for wire in self.wires)
        return self.pair.play(played, (first, second))


def _address(bootstrap: str) -> Address:
    host, port = bootstrap.split(":")
    return host, int(port)


def _common(ours: Wire, theirs: Wire) -> dict[int, tuple[int, int]]:
    """The versions of each API that both offer, and kafka-python's schemas know."""
    first, second = ours.api_versions(), theirs.api_versions()
    found = {}
    for key, row in api.load_rows().items():
        if key in first and key in second:
            most = interbroker.message_class(row.name + "Request").max_version
            lowest = max(first[key][0], second[key][0], families.LOWEST.get(row.name, 0))
            found[key] = lowest, min(first[key][1], second[key][1], most)
    return found


def _coordinates(wire: Wire, kind: int) -> bool:
    request = interbroker.message_class("FindCoordinatorRequest")
    return not wire.call(request[1](key="any", key_type=kind)).error_code


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Both brokers, running."""
    ours = Broker(tmp_path_factory.mktemp("ours"), **OURS)
    theirs = Apache("3.9.1", tmp_path_factory.mktemp("theirs"))
    try:
        ours.start()
        theirs.start()
        yield Brokers(ours, theirs)
    finally:
        ours.close()
        theirs.stop()


def compare(brokers: Brokers, family: Family, numbers: range) -> None:
    """Play these; fails with all differences that have no reason."""
    alike, stay, found = 0, Counter[str](), []
    for number in numbers:
        count, difference = brokers.play(family, number)
        alike += count
        if difference is not None and (known := reason(difference)):
            stay[known.why] += 1
        elif difference is not None:
            found.append(f"sequence {number}: {difference}")
    print(f"{family.name}: {alike} answers alike, {sum(stay.values())} differ for a reason: {dict(stay)}")
    assert not found, f"seed {SEED}, {len(found)} of {len(numbers)} sequences differ:\n" + "\n".join(found)


def sequences(default: int) -> int:
    """How many."""
    return int(os.environ.get("ODRADEK_DIFFERENTIAL_SEQUENCES", default))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("family", [f for f in families.FAMILIES if f.name in families.LANDED], ids=lambda f: f.name)
def test_dozens(brokers: Brokers, family: Family) -> None:
    compare(brokers, family, range(sequences(30)))


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("family", families.FAMILIES, ids=lambda family: family.name)
def test_thousands(brokers: Brokers, family: Family) -> None:
    compare(brokers, family, range(30, 30 + sequences(3400)))
