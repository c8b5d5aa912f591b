"""DescribeCluster (key 60), versions 0 to 2: brokers, controller and cluster id.

v1 asks for brokers or for KRaft controllers (endpoint type 2): there are no KRaft controllers, so these get
MISMATCHED_ENDPOINT_TYPE; any other type gets UNSUPPORTED_ENDPOINT_TYPE. v2 may include fenced brokers, of which there
are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.protocol.library import message_class
from odradek.workers.dispatch import topology
from odradek.workers.dispatch.api import Api
from odradek.workers.dispatch.context import Context

if TYPE_CHECKING:
    from odradek.workers.dispatch.services import Services

BROKERS, CONTROLLERS = 1, 2
MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE = 114, 115


def handle(services: Services, request: Any, context: Context) -> Any:
    response = message_class("DescribeClusterResponse")
    if context.version >= 1 and request.endpoint_type != BROKERS:
        return _no_endpoints(response, request.endpoint_type)
    snapshot = services.snapshot
    brokers = [
        response.DescribeClusterBroker(broker_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in topology.nodes(snapshot, context.listener)
    ]
    answer = response(
        endpoint_type=BROKERS,
        cluster_id=snapshot.cluster_id,
        controller_id=snapshot.controller_id,
        brokers=brokers,
    )
    if request.include_cluster_authorized_operations:
        answer.authorized_operations = set(topology.cluster_operations(context))
    return answer


def _no_endpoints(response: Any, kind: int) -> Any:
    if kind == CONTROLLERS:
        code, message = MISMATCHED_ENDPOINT_TYPE, "This broker has no KRaft controllers to describe."
    else:
        code, message = UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {kind}"
    return response(error_code=code, error_message=message, endpoint_type=BROKERS)


API = Api(key=60, name="DescribeCluster", versions=(0, 2), handle=handle)
