"""UpdateMetadata (key 6), versions 0 to 8: the elected controller sends the live brokers and partition states.

Served by members of a cluster on ZooKeeper. Answered when every process of this broker has the metadata, with the error
of a partition that could not be updated, if there is one. In versions before named listeners (0 to 2) brokers have one
listener for each security protocol, named after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.cluster.metadata.view import NO_ID, ControllerTerm, PartitionUpdate
from odradek.protocol import interbroker
from odradek.protocol.errors import NONE
from odradek.workers.dispatch.api import CONTROLLER, Api
from odradek.workers.dispatch.context import Context

BY_TOPIC, BY_ID, NAMED_LISTENERS = 5, 7, 3
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")  # by Kafka's SecurityProtocol ids
_UNKNOWN = "UNKNOWN"


def handle(controller: Any, request: Any, context: Context) -> Any:
    term = ControllerTerm.of(request, context.client_id, context.size)
    brokers = [_broker(broker, context.version) for broker in request.live_brokers]
    response = interbroker.message_class("UpdateMetadataResponse")

    def done(error: int, errors: dict[tuple[str, int], int]) -> None:
        code = error or next(iter(errors.values()), NONE)
        controller.when_published(lambda: context.reply(response(error_code=code)))

    updates = list(_partition_updates(request, context.version))
    controller.owner.controller_requests.update_metadata(term, updates, brokers, done)
    return None


def _broker(broker: Any, version: int) -> dict[str, Any]:
    if version == 0:
        endpoints = {PROTOCOLS[0]: [broker.v0_host, broker.v0_port]}
    else:
        endpoints = {_listener(end, version): [end.host, end.port] for end in broker.endpoints}
    return {"id": broker.id, "rack": broker.rack if version >= 2 else None, "endpoints": endpoints}


def _listener(endpoint: Any, version: int) -> str:
    if version >= NAMED_LISTENERS:
        return str(endpoint.listener)
    return PROTOCOLS[endpoint.security_protocol] if 0 <= endpoint.security_protocol < len(PROTOCOLS) else _UNKNOWN


def _partition_updates(request: Any, version: int) -> Iterator[PartitionUpdate]:
    if version < BY_TOPIC:
        for part in request.ungrouped_partition_states:
            yield _partition(part.topic_name, NO_ID, part)
        return
    for topic in request.topic_states:
        topic_id = topic.topic_id.bytes if version >= BY_ID and topic.topic_id else NO_ID
        for part in topic.partition_states:
            yield _partition(topic.topic_name, topic_id, part)


def _partition(name: str, topic_id: bytes, part: Any) -> PartitionUpdate:
    return PartitionUpdate(
        name, topic_id, part.partition_index, part.controller_epoch, part.leader, part.leader_epoch, list(part.isr),
        part.zk_version, list(part.replicas), offline=list(getattr(part, "offline_replicas", None) or ()),
    )  # fmt: skip


API = Api(
    key=6, name="UpdateMetadata", versions=(0, 8), runs_in=CONTROLLER, handle=handle,
    codec=interbroker.Codec("UpdateMetadata"), flexible=6, between_brokers=True,
)  # fmt: skip
