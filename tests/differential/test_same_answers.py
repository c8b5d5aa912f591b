"""The same sequences of requests to Apache Kafka 3.9.1 and to us: responses differ only with a reason in `reasons`.

`ODRADEK_DIFFERENTIAL_SEED=n` draws other sequences, `ODRADEK_DIFFERENTIAL_SEQUENCES=n` sets their number. Each sequence
has its own topics, groups and transactional ids, and ends with the first difference that may leave different states.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from odradek.protocol import interbroker
from odradek.workers.apis import table

from ..clients.admin import create_named, leads, topic_id
from ..clients.raw.calls import list_offsets, producer_id
from ..fuzz.sequences import script
from ..harness.apache import Apache
from ..harness.broker import Broker
from ..harness.process import wait_until
from ..harness.wire import Wire
from . import families
from .families import Family
from .pair import SETTLED_S, Address, Pair, Played
from .reasons.table import passes, reason

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

SEQUENCES = int(os.environ.get("ODRADEK_DIFFERENTIAL_SEQUENCES", 3400))  # of each family in the long test
SEED = os.environ.get("ODRADEK_DIFFERENTIAL_SEED", "1")
LENGTH, LATEST = 30, -1
PLAYERS = 4  # concurrent sequences
TOGETHER = 40  # the number of sequences whose topics are deleted together
WAITING = frozenset({"JoinGroup", "SyncGroup"})
STEMS = ("t", "u", "v", "w", "v.x", "v_x", "a", "b", "no")
"""Prefix of the names of a sequence's topics."""
OURS = {
    "offsets_topic_num_partitions": 4, "transaction_state_log_num_partitions": 2,
    "group_initial_rebalance_delay_ms": 0, "group_min_session_timeout_ms": 100,
}  # fmt: skip


class Brokers:
    """Both brokers, running."""

    def __init__(self, ours: Broker, theirs: Apache) -> None:
        self._bootstraps = ours.bootstrap, theirs.bootstrap
        self._pair = Pair(_address(ours.bootstrap), _address(theirs.bootstrap), families.LEARNS, WAITING, passes)
        self._keys = {row.name: key for key, row in table.load_rows().items()}
        wires = [Wire(bootstrap, 60) for bootstrap in self._bootstraps]
        self._versions = _common(*wires)
        for wire in wires:
            for kind in (0, 1):
                wait_until(lambda wire=wire, kind=kind: _coordinates(wire, kind), 60)  # type: ignore[misc]  # a default in a lambda
            producer_id(wire)  # the first id is 0, which responses without an id have, too
            wire.close()

    def play(self, family: Family, number: int, again: str = "") -> Played:
        """Play one sequence with its own names (`again`: a suffix for other names)."""
        suffix = f"{family.name}-{number}{again}"
        names = [f"{stem}-{suffix}" for stem in "tu"]
        apis = families.apis(family, self._versions, self._keys)
        played = script(f"{SEED}/{family.name}/{number}", apis, families.clients(suffix), LENGTH)
        wires = [Wire(bootstrap, 60) for bootstrap in self._bootstraps]
        try:
            first, second = (families.pools(family, suffix, names, _made(wire, names)) for wire in wires)
            return self._pair.play(played, (first, second), suffix, partial(_settled, wires, names))
        finally:
            for wire in wires:
                wire.close()

    def forget(self, family: Family, numbers: Iterable[int]) -> None:
        """Delete the topics of these sequences, after which Kafka forgets groups without offsets, also others'."""
        names = [f"{stem}-{family.name}-{number}" for number in numbers for stem in STEMS]
        for bootstrap in self._bootstraps:
            with Wire(bootstrap, 60) as wire:
                _deleted(wire, names)


def _made(wire: Wire, names: list[str]) -> list[bytes]:
    """Create topics with one and with two partitions; returns their ids."""
    for partitions, name in enumerate(names, 1):
        create_named(wire, name, partitions)
    for partitions, name in enumerate(names, 1):
        wait_until(partial(leads, wire, name, partitions - 1), 30)
    return [topic_id(wire, name).bytes for name in names]


def _settled(wires: list[Wire], names: list[str]) -> None:
    """Wait until both brokers have the same metadata of these topics; Kafka's response precedes its metadata update."""
    wait_until(lambda: _known(wires[0], names) == _known(wires[1], names), SETTLED_S, fail=False)


def _known(wire: Wire, names: list[str]) -> list[tuple[str, int, list[int]]]:
    """The topics, and their log end offsets."""
    topics = wire.metadata(*names).topics
    return sorted((row.name, row.error_code, _ends(wire, row.name, len(row.partitions))) for row in topics)


def _ends(wire: Wire, name: str, partitions: int) -> list[int]:
    return [list_offsets(wire, name, LATEST, partition=index).offset for index in range(partitions)]


def _deleted(wire: Wire, names: list[str]) -> None:
    request = interbroker.message_class("DeleteTopicsRequest")
    wire.call(request[1](topic_names=names, timeout_ms=15_000))


def _address(bootstrap: str) -> Address:
    host, port = bootstrap.split(":")
    return host, int(port)


def _common(ours: Wire, theirs: Wire) -> dict[int, tuple[int, int]]:
    """The versions of each API that both brokers support and kafka-python has schemas for."""
    first, second = ours.api_versions(), theirs.api_versions()
    found = {}
    for key, row in table.load_rows().items():
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
    """Play these sequences; fails with all unexplained differences."""
    alike, stay, found = 0, Counter[str](), []
    for few in (numbers[at : at + TOGETHER] for at in range(0, len(numbers), TOGETHER)):
        for number, played in _played(brokers, family, few):
            alike += played.alike
            differences = [*played.passed, *filter(None, (played.last,))]
            stay.update(known.why for one in differences if (known := reason(one)))
            found += [f"sequence {number}: {one}" for one in differences if not reason(one)]
    print(f"{family.name}: {alike} answers alike, {sum(stay.values())} differ for a reason: {dict(stay)}")
    assert not found, f"seed {SEED}, {len(found)} of {len(numbers)} sequences differ:\n" + "\n".join(found)


def _played(brokers: Brokers, family: Family, numbers: Sequence[int]) -> list[tuple[int, Played]]:
    """The results of some concurrent sequences. A sequence with a difference must differ again when played alone."""
    with ThreadPoolExecutor(PLAYERS) as pool:
        outcomes = list(pool.map(partial(brokers.play, family), numbers))
    rows = []
    for number, played in zip(numbers, outcomes, strict=True):
        if (once := played.last) is not None and not reason(once):
            played = brokers.play(family, number, "b")
            if played.last is None:
                print(f"{family.name}, sequence {number} did not differ again: {once}")
        rows.append((number, played))
    brokers.forget(family, numbers)
    return rows


@pytest.mark.timeout(600)
@pytest.mark.parametrize("family", [f for f in families.FAMILIES if f.name in families.LANDED], ids=lambda f: f.name)
def test_dozens_of_sequences_get_the_same_answers_as_from_kafka(brokers: Brokers, family: Family) -> None:
    compare(brokers, family, range(30))


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("family", families.FAMILIES, ids=lambda family: family.name)
def test_thousands_of_sequences_get_the_same_answers_as_from_kafka(brokers: Brokers, family: Family) -> None:
    compare(brokers, family, range(30, 30 + SEQUENCES))
