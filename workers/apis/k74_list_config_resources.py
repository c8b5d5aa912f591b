"""ListConfigResources (key 74), versions 0 and 1: the resources that DescribeConfigs can describe (KIP-1142).

v0 asks for client metrics only (KIP-714), of which there are none; v1 names resource types, or none for all of them. A
type that is named twice is answered once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.cluster.decisions import alter
from odradek.protocol.errors import NONE, UNSUPPORTED_VERSION
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import Api
from odradek.workers.dispatch.context import Context

if TYPE_CHECKING:
    from odradek.workers.dispatch.services import Services

CLIENT_METRICS, GROUP = 16, 32
_KNOWN = (alter.TOPIC, alter.BROKER, alter.BROKER_LOGGER, CLIENT_METRICS, GROUP)


def handle(services: Services, request: Any, context: Context) -> Any:
    response = message_class("ListConfigResourcesResponse")
    types = (request.resource_types or _KNOWN) if context.version >= 1 else (CLIENT_METRICS,)
    if any(kind not in _KNOWN for kind in types):
        return response(error_code=UNSUPPORTED_VERSION, config_resources=[])
    names = {
        alter.TOPIC: sorted(services.snapshot.topics),
        alter.BROKER: [str(broker) for broker in services.snapshot.brokers],
        alter.BROKER_LOGGER: [str(broker) for broker in services.snapshot.brokers],
    }
    resource = response.ConfigResource
    return response(
        error_code=NONE,
        config_resources=[
            resource(resource_name=name, resource_type=kind)
            for kind in dict.fromkeys(types)
            for name in names.get(kind, ())
        ],
    )


API = Api(key=74, name="ListConfigResources", versions=(0, 1), handle=handle)
