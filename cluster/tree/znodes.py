"""Paths and JSON formats of Kafka's nodes in the metadata tree (kafka.zk.ZkData), plus our own `/odradek`.

Topic ids are 16 bytes here, URL-safe base64 without padding in JSON (Kafka's Uuid). Readers accept the formats of older
Kafka versions; writers write version fields as Kafka 3.9 does.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple, TypeVar

from odradek.cluster.rules import validation
from odradek.protocol.wire import INT32_MAX, INT64_MAX

BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
USER_CONFIGS = "/config/users"
CLIENT_CONFIGS = "/config/clients"
IP_CONFIGS = "/config/ips"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE = f"{CONFIG_CHANGES}/config_change_"  # the prefix of sequence nodes
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE = f"{ISR_CHANGES}/isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT = f"{LOG_DIR_EVENTS}/log_dir_event_"
DELETE_TOPICS = "/admin/delete_topics"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PRODUCER_IDS = "/latest_producer_id_block"
CONSUMERS = "/consumers"
OWN = "/odradek"
STARTS = "/odradek/starts"  # number of controller starts: the upper half of slot incarnations
ADOPTION = "/odradek/adoption"  # exists while logs of another broker remain to be adopted
UNRENAMED = "/odradek/unrenamed"  # its children: ids of deleted topics that still have directories to rename
DECOY_KEY = "/odradek/scram_decoy_key"  # a secret of the cluster (cluster.user_store)
SETTLED_EPOCHS = "/odradek/lives"  # registrations that controllers have handled (broker/controller/elected)
CLUSTER_WIDE = "<default>"  # the name of the cluster-wide broker config

PERSISTENT = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    CLIENT_CONFIGS,
    USER_CONFIGS,
    IP_CONFIGS,
    DELETE_TOPICS,
    "/brokers/seqid",
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    PRODUCER_IDS,
    "/cluster",
    OWN,
)


Partition = tuple[str, int]  # a topic's name and the partition's index
# Before listeners had names (Kafka 0.9 to 0.10.1), the protocol's name stood for the listener.
_BETWEEN_BROKERS = "odradek_inter_broker_listener"
_OLD_LISTENERS = {name: name for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")}
_ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)]?:(-?[0-9]+)")


T = TypeVar("T")
MALFORMED = (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError)


class MalformedNode(ValueError):
    """A node is malformed, because tools and people write into ZooKeeper. Only its own subject is affected."""


def _strict(decode: Callable[[Any], T]) -> Callable[[Any], T]:
    """`decode`, with every error that malformed data causes raised as MalformedNode."""

    @wraps(decode)
    def decoded(data: Any) -> T:
        try:
            return decode(data)
        except MALFORMED as error:
            raise MalformedNode(f"{error} in {bytes(data or b'')[:200]!r}") from error

    return decoded


def _int32(value: Any) -> int:
    if type(value) is not int or not -1 <= value <= INT32_MAX:
        raise MalformedNode(f"{value!r} is not a number from -1 to {INT32_MAX}")
    return value


def _brokers(values: Any) -> list[int]:
    """Broker ids."""
    found = [_int32(value) for value in values]
    if min(found, default=0) < 0:
        raise MalformedNode(f"{found} contains a value that is not a broker id")
    return found


def _index(text: str) -> int:
    """A partition's index."""
    wrong = validation.partition_problem(int(text))
    if wrong:
        raise MalformedNode(wrong)
    return int(text)


class TopicNode(NamedTuple):
    """The contents of `/brokers/topics/<t>`: the id (None before Kafka 2.8) and the replicas of each partition.

    A partition under reassignment has its new replicas in `adding` and its leaving ones in `removing`; both are among
    `replicas` until all target replicas are in sync. Other partitions are in neither.
    """

    id: bytes | None
    replicas: dict[int, list[int]]
    adding: Mapping[int, Sequence[int]] = {}
    removing: Mapping[int, Sequence[int]] = {}


class BrokerNode(NamedTuple):
    """The contents of `/brokers/ids/<n>`: host and port and security protocol by listener name, and the rack.

    `between_brokers`: inter.broker.listener.name, which Apache Kafka's brokers do not register.
    """

    endpoints: dict[str, tuple[str, int]]
    protocols: dict[str, str]
    rack: str | None
    between_brokers: str | None = None


class PartitionState(NamedTuple):
    """The contents of `…/partitions/<n>/state`."""

    leader: int
    leader_epoch: int
    isr: list[int]
    controller_epoch: int


def to_json(value: Any) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def uuid_text(raw: bytes) -> str:
    """Kafka's text of a 16-byte id: `AAAAAAAAAAAAAAAAAAAAAQ`."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def uuid_bytes(text: str) -> bytes:
    """The 16 bytes of Kafka's text of an id."""
    return base64.urlsafe_b64decode(text + "==")


def random_uuid() -> bytes:
    """A new id whose text does not begin with `-`, as Kafka's (a command line would parse it as an option)."""
    while True:
        raw = uuid.uuid4().bytes
        if not uuid_text(raw).startswith("-"):
            return raw


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def unrenamed_path(topic_id: bytes) -> str:
    """The node of a deleted topic that still has directories to rename."""
    return f"{UNRENAMED}/{uuid_text(topic_id)}"


def broker_config_path(broker: int | None) -> str:
    return f"{BROKER_CONFIGS}/{CLUSTER_WIDE if broker is None else broker}"


def consumer_offset_path(group: str, topic: str, partition: int) -> str:
    return f"{CONSUMERS}/{group}/offsets/{topic}/{partition}"


def encode_topic(node: TopicNode) -> bytes:
    value: dict[str, Any] = {"version": 3}
    if node.id is not None:
        value["topic_id"] = uuid_text(node.id)
    value["partitions"] = _by_text(node.replicas)
    value["adding_replicas"] = _by_text(node.adding)
    value["removing_replicas"] = _by_text(node.removing)
    return to_json(value)


def _by_text(replicas: Mapping[int, Sequence[int]]) -> dict[str, list[int]]:
    return {str(index): list(brokers) for index, brokers in sorted(replicas.items())}


@_strict
def decode_topic(data: bytes) -> TopicNode:
    """MalformedNode."""
    value = json.loads(data)
    names = ("partitions", "adding_replicas", "removing_replicas")  # versions 1 and 2 have only the first
    topic_id = uuid_bytes(value["topic_id"]) if "topic_id" in value else None
    if topic_id is not None and len(topic_id) != 16:
        raise MalformedNode(f"{value['topic_id']!r} is not a topic id")
    node = TopicNode(
        topic_id,
        *({_index(index): _brokers(brokers) for index, brokers in value.get(name, {}).items()} for name in names),
    )
    if not all(node.replicas.values()):
        raise MalformedNode("a partition without replicas")
    return node


def encode_state(state: PartitionState) -> bytes:
    return to_json(
        {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": state.isr,
        }
    )


@_strict
def decode_state(data: bytes) -> PartitionState:
    """MalformedNode."""
    value = json.loads(data)
    leader, epoch, controller = (_int32(value[name]) for name in ("leader", "leader_epoch", "controller_epoch"))
    return PartitionState(leader, epoch, _brokers(value["isr"]), controller)


def encode_settled_epochs(epochs: Mapping[int, int]) -> bytes:
    """The czxids of broker registrations."""
    return to_json({"version": 1, "brokers": {str(broker): epoch for broker, epoch in sorted(epochs.items())}})


@_strict
def decode_settled_epochs(data: bytes) -> dict[int, int]:
    """MalformedNode."""
    return {int(broker): int(epoch) for broker, epoch in json.loads(data)["brokers"].items()}


def encode_config(configs: dict[str, str]) -> bytes:
    return to_json({"version": 1, "config": configs})


@_strict
def decode_config(data: bytes | None) -> dict[str, str]:
    """The configs of a `/config/<type>/<name>` node; {} when it has none. MalformedNode."""
    configs = json.loads(data).get("config") or {} if data else {}
    return {str(name): str(value) for name, value in configs.items()}


def encode_cluster_id(cluster_id: str) -> bytes:
    return to_json({"version": "1", "id": cluster_id})


@_strict
def decode_cluster_id(data: bytes) -> str:
    return str(json.loads(data)["id"])


def encode_controller(broker: int, now_ms: int) -> bytes:
    return to_json({"version": 2, "brokerid": broker, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


@_strict
def decode_controller(data: bytes) -> int:
    """The id of the elected controller in `/controller`. MalformedNode."""
    return _brokers([json.loads(data)["brokerid"]])[0]


def decode_broker_id(name: str) -> int:
    """The broker id in the name of a node under `/brokers/ids`. MalformedNode."""
    if not (name.isdecimal() and name.isascii() and int(name) <= INT32_MAX):
        raise MalformedNode(f"{name!r} is not a broker id")
    return int(name)


def encode_broker(
    endpoints: dict[str, tuple[str, int]], protocols: dict[str, str], rack: str | None, now_ms: int,
    between_brokers: str | None = None,
) -> bytes:  # fmt: skip
    """`/brokers/ids/<n>`, version 5; host and port are those of the first plaintext listener, for old clients."""
    host, port = next((end for name, end in endpoints.items() if protocols.get(name) == "PLAINTEXT"), ("", -1))
    value: dict[str, Any] = {
        "version": 5,
        "host": host or None,
        "port": port,
        "jmx_port": -1,
        "timestamp": str(now_ms),
        "endpoints": [f"{name}://{_host_text(end[0])}:{end[1]}" for name, end in endpoints.items()],
        "listener_security_protocol_map": protocols,
        "features": {},
    }
    own = {_BETWEEN_BROKERS: between_brokers} if between_brokers else {}  # other brokers ignore it
    return to_json(value | ({"rack": rack} if rack else {}) | own)


def _host_text(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@_strict
def decode_broker(data: bytes) -> BrokerNode:
    """Versions 1 (Kafka 0.8: one plaintext listener) to 5. MalformedNode, also when there is no endpoint."""
    value = json.loads(data)
    rack = value.get("rack")
    if value["version"] < 2:
        end = str(value["host"]), _int32(value["port"])
        return BrokerNode({"PLAINTEXT": end}, {"PLAINTEXT": "PLAINTEXT"}, rack)
    known = value.get("listener_security_protocol_map", _OLD_LISTENERS)
    endpoints = dict(map(_endpoint, value["endpoints"]))
    if not endpoints:
        raise MalformedNode("a broker without endpoints")
    between_brokers = value.get(_BETWEEN_BROKERS)
    own = between_brokers if isinstance(between_brokers, str) else None
    return BrokerNode(endpoints, {name: known[name] for name in endpoints}, rack, own)


def _endpoint(text: str) -> tuple[str, tuple[str, int]]:
    found = _ENDPOINT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not an endpoint such as PLAINTEXT://host:9092")
    return found[1].upper(), (found[2], int(found[3]))


def encode_producer_block(broker: int, start: int, end: int) -> bytes:
    return to_json({"version": 1, "broker": broker, "block_start": str(start), "block_end": str(end)})


def next_producer_block(data: bytes | None, broker: int, size: int = 1000) -> tuple[int, bytes]:
    """(first id of the next block, the node's new data), from the data that claims the last block. KIP-360's format."""
    start = int(json.loads(data)["block_end"]) + 1 if data else 0
    if start > INT64_MAX - size:
        raise OverflowError("no producer ids are left")
    return start, encode_producer_block(broker, start, start + size - 1)
