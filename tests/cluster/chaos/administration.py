"""Operations of an administrator during the faults; they have the form of the faults in faults.py, which includes them.

Requests on the topic under load keep its guarantees: they may lose no acknowledged record.
Operations that may lose records (unclean elections) or delete them use separate topics.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ...clients.admin import unique
from ...harness.process import wait_until
from ...harness.wire import Wire
from . import admin_requests, divergence
from .chaos_cluster import HEAL_S, ChaosCluster

_ELECTION_NOT_NEEDED, _PREFERRED_NOT_AVAILABLE = 84, 80
_UNKNOWN_TOPIC, _ALREADY_EXISTS, _INVALID_PARTITIONS = 3, 36, 37
_RECORDS = 30
_GROWN = 6


# -- replicas and leaders


@contextmanager
def moved_off(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """All partitions are reassigned to the other brokers, and then back, with another preferred leader."""
    _reassign(chaos_cluster, [one for one in chaos_cluster.ids if one != broker])
    yield
    _reassign(chaos_cluster, chaos_cluster.ids)


@contextmanager
def moved_off_while_down(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """The broker is killed, and starts again once all its replicas are reassigned."""
    chaos_cluster.administrator.settle()  # the reassignment waits for a former deletion, which waits for it
    chaos_cluster.broker(broker).kill()
    _reassign(chaos_cluster, [one for one in chaos_cluster.ids if one != broker])
    yield
    chaos_cluster.administrator.settle()
    chaos_cluster.broker(broker).start()
    _reassign(chaos_cluster, chaos_cluster.ids)


@contextmanager
def preferred_elected(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """The broker becomes the preferred leader of all partitions, and is elected; then the leaders are spread again."""
    _reassign(chaos_cluster, sorted(chaos_cluster.ids, key=lambda one: one != broker), spread=False)
    _elect_preferred(chaos_cluster)
    yield
    _reassign(chaos_cluster, chaos_cluster.ids)
    _elect_preferred(chaos_cluster)


def _reassign(chaos_cluster: ChaosCluster, brokers: list[int], *, spread: bool = True) -> None:
    def job() -> None:
        replicas = {
            place: _turned(brokers, number if spread else 0) for number, place in enumerate(chaos_cluster.partitions())
        }
        chaos_cluster.administrator.request(partial(admin_requests.reassign, replicas=replicas), ())

    chaos_cluster.administrator.do(job)


def _elect_preferred(chaos_cluster: ChaosCluster) -> None:
    accepted = (_ELECTION_NOT_NEEDED, _PREFERRED_NOT_AVAILABLE)

    def job() -> None:
        places = chaos_cluster.partitions()
        chaos_cluster.administrator.request(partial(admin_requests.elect, kind=0, partitions=places), accepted)

    chaos_cluster.administrator.do(job)


def _turned(brokers: list[int], by: int) -> list[int]:
    by %= len(brokers)
    return brokers[by:] + brokers[:by]


@contextmanager
def elected_uncleanly(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """An unclean election elects the lagging one of a topic's two replicas; the other one must follow it."""
    other = (broker + 1) % len(chaos_cluster.ids)
    name = unique("unclean")
    _create(chaos_cluster, name, {0: [broker, other]}, min_insync_replicas=1)
    wait_until(lambda: chaos_cluster.isr(name) == {broker, other}, HEAL_S, f"both replicas of {name} are in sync")
    chaos_cluster.broker(other).kill()
    _produce(chaos_cluster, name, "before")
    chaos_cluster.broker(broker).kill()
    chaos_cluster.broker(other).start()
    elect = partial(admin_requests.elect, kind=admin_requests.UNCLEAN, partitions=[(name, 0)])
    chaos_cluster.administrator.request(elect, (_ELECTION_NOT_NEEDED,))
    _produce(chaos_cluster, name, "behind")
    yield
    chaos_cluster.broker(broker).start()
    wait_until(lambda: chaos_cluster.isr(name) == {broker, other}, HEAL_S, f"both replicas of {name} are in sync")
    _produce(chaos_cluster, name, "after")
    _compare(chaos_cluster, name, [broker, other])
    _delete(chaos_cluster, name)


# -- topics


@contextmanager
def made_again(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """A topic is deleted and recreated under the same name, three times; each has only its own records."""
    name = unique("again")

    def job() -> None:
        former = None
        for life in ("first", "second", "third"):
            former = _new_life(chaos_cluster, name, former)
            _produce(chaos_cluster, name, life)
            _delete(chaos_cluster, name)

    chaos_cluster.administrator.do(job)
    yield


@contextmanager
def grown(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
    """A topic gets more partitions, one after the other, and takes records in each of them."""
    name = unique("grown")

    def job() -> None:
        _create(chaos_cluster, name, {0: chaos_cluster.ids})
        for count in range(2, _GROWN):
            more = partial(admin_requests.add_partitions, topic=name, count=count)
            chaos_cluster.administrator.request(
                more, (_INVALID_PARTITIONS,)
            )  # the answer was lost: the topic has the partitions already
            _produce(chaos_cluster, name, f"with {count}", count - 1)
        _delete(chaos_cluster, name)

    chaos_cluster.administrator.do(job)
    yield


def min_insync_replicas(number: int) -> Any:
    """Set min.insync.replicas of the topic under load, for the duration.

    A separate administrator does this: partitions cannot be added while a broker is down, which returns when the load
    continues, and the load waits for the former value.
    """

    @contextmanager
    def fault(chaos_cluster: ChaosCluster, broker: int, seconds: float) -> Iterator[None]:
        for value in (number, 2):
            change = partial(_set_of_load, chaos_cluster=chaos_cluster, value=value)
            chaos_cluster.configurator.ask(change, ())
            if value == number:
                yield

    return fault


def _set_of_load(wire: Wire, chaos_cluster: ChaosCluster, value: int) -> list[int]:
    [topic] = {topic for topic, _ in chaos_cluster.partitions() if topic.startswith("load")}
    return admin_requests.set_config(wire, topic, "min.insync.replicas", value)


def _create(chaos_cluster: ChaosCluster, name: str, assignments: dict[int, list[int]], **config: Any) -> None:
    make = partial(admin_requests.create, topic=name, assignments=assignments, **config)
    chaos_cluster.administrator.request(make, (_ALREADY_EXISTS,))


def _delete(chaos_cluster: ChaosCluster, name: str) -> None:
    chaos_cluster.administrator.request(partial(admin_requests.delete, topic=name), (_UNKNOWN_TOPIC,))
    chaos_cluster.deleted.add(name)


def _new_life(chaos_cluster: ChaosCluster, name: str, former: Any) -> Any:
    """Create the topic until its id differs from the former one; return the id."""
    deadline = time.monotonic() + HEAL_S
    while time.monotonic() < deadline:
        _create(chaos_cluster, name, {0: chaos_cluster.ids}, min_insync_replicas=2)
        found = chaos_cluster.topic_id(name)
        if found not in (None, former):
            return found
    raise AssertionError(f"{name} was not recreated within {HEAL_S} s")


# -- records


def _produce(chaos_cluster: ChaosCluster, name: str, life: str, partition: int = 0) -> None:
    """Produce records with acks=all, and read all of them back, after earlier ones."""
    sent = [f"{life} {number}".encode() for number in range(_RECORDS)]
    left = list(sent)

    def all_sent() -> bool:
        left[:] = _send(chaos_cluster, name, partition, left)
        return not left

    wait_until(all_sent, HEAL_S, f"producers can write to partition {partition} of {name}")
    found = _read(chaos_cluster, name, partition, sent[-1])
    assert found[-_RECORDS:] == sent, f"lost: {name}: sent {len(sent)} records of '{life}', read {found[-_RECORDS:]}"
    strangers = [value for value in found if not _may_be(value, name, life)]
    assert not strangers, f"stranger: {name} has {strangers[:3]}, which are not of '{life}'"


def _send(chaos_cluster: ChaosCluster, name: str, partition: int, values: list[bytes]) -> list[bytes]:
    """Produce values, and return those that were not sent: a broker that the controller does not reach may report fewer
    partitions than exist, as in Apache Kafka, and then librdkafka does not send.
    """
    from confluent_kafka import KafkaError, Producer

    config = {"acks": "all", "enable.idempotence": True, "message.timeout.ms": 200_000, "log_level": 0}
    failed: list[tuple[Any, bytes]] = []
    with_fault = lambda error, message: failed.append((error, message.value())) if error else None  # noqa: E731
    producer = Producer({**chaos_cluster.clients.librdkafka, **config})
    for value in values:
        producer.produce(name, value, partition=partition, on_delivery=with_fault)
    undecided = producer.flush(220)
    gone = [error for error, _ in failed if error.code() != KafkaError._UNKNOWN_PARTITION]
    assert not undecided and not gone, (
        f"{name}: {undecided} of {len(values)} records have no delivery report; errors: {gone[:1]}"
    )
    return [value for _, value in failed]


def _may_be(value: bytes, name: str, life: str) -> bool:
    """Whether a value may be in the topic: a recreated topic has only records of its current life."""
    return value.startswith(life.encode()) or not name.startswith("again")


def _read(chaos_cluster: ChaosCluster, name: str, partition: int, last: bytes) -> list[bytes]:
    """All values from the start to the known last one, or those that come within a minute."""
    from confluent_kafka import Consumer, TopicPartition

    config = {"group.id": name, "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({**chaos_cluster.clients.librdkafka, **config})
    consumer.assign([TopicPartition(name, partition, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    while last not in found and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
    consumer.close()
    return found


def _compare(chaos_cluster: ChaosCluster, name: str, brokers: list[int]) -> None:
    """Compare the replicas of a partition that has no further writes."""
    folders = [chaos_cluster.data(one) / f"{name}-0" for one in brokers]
    end = 1 << 62
    same = lambda: not divergence.differences(f"{name}-0", folders, end)  # noqa: E731
    wait_until(same, 30, fail=False)
    found = divergence.differences(f"{name}-0", folders, end)
    assert not found, found
