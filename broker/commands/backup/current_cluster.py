"""Reads the sections of a backup from a cluster, by Kafka's requests; users also from ZooKeeper.

What cannot be read is a line of `missing`, by its name; the rest is read all the same. A broker that does not have an
API has nothing of that kind: the section is empty then. A lost connection ends the command.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kafka import errors as kafka_errors
from kafka.protocol.admin import DescribeClientQuotasRequest, DescribeConfigsRequest

from odradek.broker.commands._shared.client import BROKER, TOPIC, Cluster, RequestFailed, check, explain
from odradek.broker.commands._shared.scram_credentials import described
from odradek.broker.commands.acls.list_acls import acls_in, describe_request
from odradek.broker.commands.backup.saved_cluster import (
    ALL_BROKERS,
    Acl,
    Configs,
    Credential,
    Entity,
    Topic,
)
from odradek.broker.commands.backup.shown_text import shown, shown_broker
from odradek.protocol.errors import SECURITY_DISABLED
from odradek.security.acls.acl_filters import ResourcePatternFilter
from odradek.security.sasl.scram_keys import format_credential

if TYPE_CHECKING:
    from odradek.cluster.tree.tree import Tree

REFUSED = (RequestFailed, kafka_errors.BrokerResponseError)
"""An error code of a broker; other errors of the client are lost connections."""

_AT_ONCE = 200  # topics of one request
_PAUSE = 0.1  # s between two attempts
_OF_TOPIC, _OF_BROKER, _OF_ALL_BROKERS = 1, 2, 3  # config sources: set for this entity itself

T = TypeVar("T")
Missing = list[str]


def section(name: str, missing: Missing, read: Callable[[], T], empty: T) -> T | None:
    """What `read` returns; `empty` where the brokers have no such API; None, and a line, for an error code."""
    try:
        return read()
    except kafka_errors.UnsupportedVersionError:
        return empty
    except REFUSED as error:
        missing.append(f"{name}: {error}")
        return None


def patiently(cluster: Cluster, call: Callable[[], T]) -> T:
    """Repeat `call` while a broker answers that it cannot yet, as a coordinator that loads its groups does."""
    deadline = time.monotonic() + cluster.timeout_ms / 1000
    while True:
        try:
            return call()
        except kafka_errors.RetriableError as error:
            if not isinstance(error, kafka_errors.BrokerResponseError) or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE)


def pieces(things: Sequence[T], most: int = _AT_ONCE) -> Iterator[Sequence[T]]:
    """The things in requests of at most `most`."""
    return (things[at : at + most] for at in range(0, len(things), most))


# -- topics and brokers


def topics(cluster: Cluster, missing: Missing) -> dict[str, Topic]:
    """All topics but internal ones, which brokers create themselves."""
    found = {}
    for topic in cluster.metadata().topics:
        if topic.error_code:
            missing.append(f"topic {shown(topic.name)}: {explain(topic.error_code)}")
        elif not topic.is_internal:
            found[topic.name] = topic
    configs = _configs(cluster, TOPIC, sorted(found), missing)
    return {name: _topic(topic, configs.get(name, {})) for name, topic in found.items()}


def _topic(topic: Any, configs: Configs) -> Topic:
    factor = max((len(part.replica_nodes) for part in topic.partitions), default=1)
    made = getattr(topic, "topic_id", None)
    return Topic(len(topic.partitions), factor, made.hex if made is not None and made.int else "", configs)


def brokers(cluster: Cluster, missing: Missing) -> dict[str, Configs]:
    """The dynamic configs of each broker that is up, and the cluster's default."""
    metadata = cluster.metadata()
    alive = {broker.node_id for broker in metadata.brokers}
    known = {node for topic in metadata.topics for part in topic.partitions for node in part.replica_nodes}
    missing += [f"configs of broker {node}: it is down" for node in sorted(known - alive)]
    found = _configs(cluster, BROKER, [ALL_BROKERS, *map(str, sorted(alive))], missing)
    return {name: configs for name, configs in found.items() if configs or name != ALL_BROKERS}


def _configs(cluster: Cluster, kind: int, names: Sequence[str], missing: Missing) -> dict[str, Configs]:
    """What is set for these entities themselves. Each broker answers for itself."""
    found: dict[str, Configs] = {}
    for some in pieces(names) if kind == TOPIC else ([name] for name in names):
        node = int(some[0]) if kind == BROKER and some[0] else None
        for result in cluster.send(_describe(kind, some), node).results:
            if result.error_code:
                why = result.error_message or explain(result.error_code)
                missing.append(f"configs of {_title(kind, result.resource_name)}: {why}")
            else:
                found[result.resource_name] = _own(kind, result)
    return found


def _title(kind: int, name: str) -> str:
    return f"topic {shown(name)}" if kind == TOPIC else shown_broker(name)


def _describe(kind: int, names: Iterable[str]) -> Any:
    make = DescribeConfigsRequest.DescribeConfigsResource
    resources = [make(resource_type=kind, resource_name=name, configuration_keys=None) for name in names]
    return DescribeConfigsRequest(resources=resources, include_synonyms=False, include_documentation=False)


def _own(kind: int, result: Any) -> Configs:
    source = _OF_TOPIC if kind == TOPIC else _OF_BROKER if result.resource_name else _OF_ALL_BROKERS
    return {one.name: None if one.is_sensitive else one.value for one in result.configs if one.config_source == source}


# -- quotas, users, ACLs


def quotas(cluster: Cluster, _missing: Missing) -> dict[Entity, dict[str, float]]:
    """The quotas of all entities. RequestFailed."""
    answer = cluster.send(DescribeClientQuotasRequest(components=[], strict=False))
    check(answer.error_code, answer.error_message)
    return {
        tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries or ()
    }


def users(cluster: Cluster, _missing: Missing) -> dict[str, dict[str, Credential]]:
    """Users with mechanisms and iterations: brokers return nothing secret. RequestFailed."""
    return {
        user: {mechanism: Credential(iterations) for mechanism, iterations in held}
        for user, held in described(cluster).items()
    }


def users_in(tree: Tree, missing: Missing) -> dict[str, dict[str, Credential]]:
    """Users with their credentials as the nodes have them."""
    from odradek.cluster import user_store
    from odradek.cluster.tree import znodes

    if tree.exists(znodes.USER_CONFIGS) is None:
        return {}
    found: dict[str, dict[str, Credential]] = {}
    for user, held in user_store.read_credentials(tree).items():
        for mechanism, one in held.items():
            if one is None:
                missing.append(f"{mechanism.value} of user {shown(user)}: its node in ZooKeeper is malformed")
            else:
                found.setdefault(user, {})[mechanism.value] = Credential(one.iterations, format_credential(one))
    return found


def acls(cluster: Cluster, _missing: Missing) -> frozenset[Acl]:
    """All ACLs; none without an authorizer. RequestFailed."""
    answer = cluster.send(describe_request(ResourcePatternFilter()))
    if answer.error_code == SECURITY_DISABLED:
        return frozenset()
    check(answer.error_code, answer.error_message)
    return frozenset(
        Acl(pattern.type.name, pattern.name, pattern.pattern.name, entry.principal, entry.host, entry.operation.name,
            entry.permission.name)
        for pattern, entries in acls_in(answer).items() for entry in entries
    )  # fmt: skip
