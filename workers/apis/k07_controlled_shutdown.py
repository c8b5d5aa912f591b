"""ControlledShutdown (key 7), versions 1 to 3: a broker that shuts down hands its leaderships to other brokers.

Served by the elected controller of a cluster on ZooKeeper; others answer NOT_CONTROLLER. The answer names the
partitions that the broker still leads, because no other replica is in sync. Version 0, which has a header of its own
and predates Kafka 0.9, is not served.
"""

from __future__ import annotations

from typing import Any

from odradek.cluster.rules.errors import ApiError
from odradek.protocol import interbroker
from odradek.protocol.errors import NONE
from odradek.workers.dispatch.api import CONTROLLER, Api
from odradek.workers.dispatch.context import Context

_UNKNOWN_EPOCH = -1


def handle(controller: Any, request: Any, context: Context) -> Any:
    response = interbroker.message_class("ControlledShutdownResponse")
    epoch = request.broker_epoch if context.version >= 2 else _UNKNOWN_EPOCH
    try:
        remaining = controller.owner.controlled_shutdown(request.broker_id, epoch)
    except ApiError as error:
        return response(error_code=error.code, remaining_partitions=[])
    rows = [response.RemainingPartition(topic_name=topic, partition_index=index) for topic, index in remaining]
    return response(error_code=NONE, remaining_partitions=rows)


API = Api(
    key=7, name="ControlledShutdown", versions=(1, 3), runs_in=CONTROLLER, handle=handle,
    codec=interbroker.Codec("ControlledShutdown"), flexible=3, between_brokers=True,
)  # fmt: skip
