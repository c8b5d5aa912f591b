"""AlterClientQuotas (key 49), versions 0 and 1: set or remove quotas of users, client ids and addresses (KIP-546).

Answered when every live worker knows the quotas. Left out: host names in place of IP addresses, which Kafka resolves.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from typing import Any

from odradek.protocol.errors import NONE
from odradek.protocol.library import message_class
from odradek.security.quotas import requests
from odradek.security.quotas.entities import entity_of, path_of
from odradek.security.quotas.requests import Alteration, Result
from odradek.workers.dispatch.administration import Controller, attempt
from odradek.workers.dispatch.api import CONTROLLER, Api
from odradek.workers.dispatch.context import Context


def handle(controller: Controller, request: Any, context: Context) -> Iterator[None]:
    alterations = [_alteration(entry) for entry in request.entries]
    yield
    results = requests.alter(controller.snapshot.quotas, alterations, _is_address)
    yield
    entries = []
    for result in results:
        code, message = result.code, result.message
        if result.quotas is not None and not request.validate_only:
            stored, why = attempt(_store(controller, result))
            code, message = (stored, why) if code == NONE else (code, message)
            if stored == NONE:
                context.changed(f"set quotas of {path_of(result.entity)}")
        entries.append(_entry(result, code, message))
        yield
    response = message_class("AlterClientQuotasResponse")(entries=entries)
    controller.when_published(lambda: context.reply(response))


def _alteration(entry: Any) -> Alteration:
    pairs = [(part.entity_type, part.entity_name) for part in entry.entity]
    return Alteration(entity_of(pairs), [(op.key, None if op.remove else op.value) for op in entry.ops])


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _store(controller: Controller, result: Result) -> Callable[[], None]:
    quotas = result.quotas or {}
    return lambda: controller.owner.set_quotas(result.entity, quotas)


def _entry(result: Result, code: int, message: str | None) -> Any:
    data = message_class("AlterClientQuotasResponse").EntryData
    entity = [data.EntityData(entity_type=kind, entity_name=name) for kind, name in result.entity]
    return data(error_code=code, error_message=message, entity=entity)


API = Api(key=49, name="AlterClientQuotas", versions=(0, 1), runs_in=CONTROLLER, handle=handle)
