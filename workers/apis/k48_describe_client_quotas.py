"""DescribeClientQuotas (key 48), versions 0 and 1: none are set, as there are no quotas yet (KIP-546).

Refuses the filters that Kafka refuses: an empty or repeated entity type, one other than user, client-id or ip, ip
together with the others, or a match that contradicts its match type. Such an answer has null for entries.
"""

from __future__ import annotations

from typing import Any

from odradek.protocol.errors import INVALID_REQUEST, NONE, UNSUPPORTED_VERSION
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import Api
from odradek.workers.dispatch.context import Context

KNOWN = frozenset({"user", "client-id", "ip"})
EXACT, DEFAULT, ANY = range(3)


def handle(worker: Any, request: Any, context: Context) -> Any:
    response = message_class("DescribeClientQuotasResponse")
    code, message = _problem(request.components)
    return response(error_code=code, error_message=message, entries=None if code else [])


def _problem(components: list[Any]) -> tuple[int, str | None]:
    seen: set[str] = set()
    for component in components:
        if not component.entity_type or component.entity_type in seen:
            return INVALID_REQUEST, "An entity type is empty or appears more than once."
        if component.entity_type not in KNOWN:
            return UNSUPPORTED_VERSION, "An entity type must be user, client-id or ip."
        if component.match_type not in (EXACT, DEFAULT, ANY):
            return INVALID_REQUEST, f"Unknown match type {component.match_type}"
        if (component.match is None) is (component.match_type == EXACT):
            return INVALID_REQUEST, f"Match type {component.match_type} does not allow this match value."
        seen.add(component.entity_type)
    if "ip" in seen and len(seen) > 1:
        return INVALID_REQUEST, "ip cannot be combined with user or client-id."
    return NONE, None


API = Api(key=48, name="DescribeClientQuotas", versions=(0, 1), handle=handle)
