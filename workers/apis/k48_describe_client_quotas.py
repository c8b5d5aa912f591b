"""DescribeClientQuotas (key 48), versions 0 and 1: the quotas of the entities that match a filter (KIP-546).

Refuses the filters that Kafka refuses (security.quotas.requests). Such an answer has null for entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from odradek.protocol.errors import NONE
from odradek.protocol.library import message_class
from odradek.security.quotas import requests
from odradek.security.quotas.entities import Entity
from odradek.security.quotas.requests import Component, QuotaError
from odradek.workers.dispatch.api import Api, pieces
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.services import Services


def handle(services: Services, request: Any, context: Context) -> Iterator[None]:
    components = [Component(one.entity_type, one.match_type, one.match) for one in request.components]
    response = message_class("DescribeClientQuotasResponse")
    try:
        found = requests.describe(services.snapshot.quotas, components, request.strict)
    except QuotaError as error:
        context.reply(response(error_code=error.code, error_message=str(error), entries=None))
        return
    entries: list[Any] = []
    for some in pieces(list(found.items())):
        entries += [_entry(entity, quotas) for entity, quotas in some]
        yield
    context.reply(response(error_code=NONE, error_message=None, entries=entries))


def _entry(entity: Entity, quotas: Mapping[str, float]) -> Any:
    data = message_class("DescribeClientQuotasResponse").EntryData
    return data(
        entity=[data.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[data.ValueData(key=key, value=value) for key, value in quotas.items()],
    )


API = Api(key=48, name="DescribeClientQuotas", versions=(0, 1), handle=handle)
