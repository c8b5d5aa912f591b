"""What DescribeClientQuotas finds and AlterClientQuotas changes (KIP-546), over a mapping of entities to their quotas.

Error codes, and the order of the checks, are those of Kafka's KRaft controller (ClientQuotaControlManager and
ClientQuotasImage, 3.9 and 4). A ZooKeeper controller of 3.9 is laxer: it takes values of 0 and below, the same key
twice and the same entity twice, which only hide mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek.protocol.errors import INVALID_REQUEST, NONE, UNKNOWN_SERVER_ERROR, UNSUPPORTED_VERSION
from odradek.security.quotas.entities import IP, TYPES, Entity
from odradek.security.quotas.keys import Kind, keys_of

EXACT, DEFAULT, SPECIFIED = range(3)
Ops = Sequence[tuple[str, float | None]]
Quotas = Mapping[Entity, Mapping[str, float]]
_FRACTION = 1e-6  # a whole number may differ from one by as much
_LONGEST = 1000  # characters of a message: a name in it may be longer than a response allows


class QuotaError(Exception):
    """A request that Kafka refuses: the error code and its message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…")
        self.code = code


class Component(NamedTuple):
    """One part of a filter: entities with this name of a type, with its default, or with any of the two."""

    entity_type: str
    match_type: int
    match: str | None


class Alteration(NamedTuple):
    """The quotas to set for an entity; None removes one."""

    entity: Entity
    ops: Ops


class Result(NamedTuple):
    """The answer for one entity, and the quotas that it has afterwards; None when they stay as they are.

    An entity that comes twice keeps its first change and is answered with an error, as in Kafka.
    """

    entity: Entity
    code: int
    message: str | None
    quotas: Mapping[str, float] | None


def describe(quotas: Quotas, components: Sequence[Component], strict: bool) -> dict[Entity, dict[str, float]]:
    """The entities that match all components, and with `strict` have no other types. Raises QuotaError."""
    wanted = _filter(components)
    return {entity: dict(values) for entity, values in quotas.items() if values and _matches(entity, wanted, strict)}


def _filter(components: Iterable[Component]) -> dict[str, Component]:
    wanted: dict[str, Component] = {}
    for component in components:
        _check_component(component, wanted)
        wanted[component.entity_type] = component
    if IP in wanted and len(wanted) > 1:
        raise QuotaError(INVALID_REQUEST, "An ip cannot be combined with a user or client-id.")
    return wanted


def _check_component(component: Component, wanted: Mapping[str, Component]) -> None:
    kind, match_type, match = component
    if not kind:
        raise QuotaError(INVALID_REQUEST, "The entity type is empty.")
    if kind in wanted:
        raise QuotaError(INVALID_REQUEST, f"The entity type {kind} appears more than once.")
    if kind not in TYPES:
        raise QuotaError(UNSUPPORTED_VERSION, f"The entity type {kind} is not one of {', '.join(TYPES)}.")
    if match_type not in (EXACT, DEFAULT, SPECIFIED):
        raise QuotaError(INVALID_REQUEST, f"Unknown match type {match_type}.")
    if (match is None) is (match_type == EXACT):
        raise QuotaError(INVALID_REQUEST, f"Match type {match_type} does not allow this match value.")


def _matches(entity: Entity, wanted: Mapping[str, Component], strict: bool) -> bool:
    names = dict(entity)
    if strict and len(names) != len(wanted):
        return False
    return all(
        kind in names and (one.match_type == SPECIFIED or names[kind] == one.match) for kind, one in wanted.items()
    )


def alter(quotas: Quotas, alterations: Iterable[Alteration], valid_ip: Callable[[str], bool]) -> list[Result]:
    """One result for each entity, in their order; nothing is written.

    The caller stores the quotas of the results, unless the request is `validate_only`. `valid_ip`: whether an address
    is one, or a host name that resolves.
    """
    results: dict[Entity, Result] = {}
    for entity, ops in alterations:
        if entity in results:
            results[entity] = _twice(entity)._replace(quotas=results[entity].quotas)
        elif len({key for key, _ in ops}) < len(ops):
            results[entity] = _twice(entity)
        else:
            results[entity] = _altered(quotas.get(entity, {}), entity, ops, valid_ip)
    return list(results.values())


def _twice(entity: Entity) -> Result:
    return Result(entity, INVALID_REQUEST, "The entity or one of its keys comes twice.", None)


def _altered(current: Mapping[str, float], entity: Entity, ops: Ops, valid_ip: Callable[[str], bool]) -> Result:
    try:
        _check_entity(entity, valid_ip)
        return Result(entity, NONE, None, _changed(current, entity, ops))
    except QuotaError as error:
        return Result(entity, error.code, str(error), None)


def _changed(current: Mapping[str, float], entity: Entity, ops: Ops) -> dict[str, float]:
    changed, kinds = dict(current), keys_of(entity)
    for key, value in ops:
        if value is None:
            changed.pop(key, None)
        else:
            _check_value(kinds.get(key), key, value)
            changed[key] = value
    return changed


def _check_entity(entity: Entity, valid_ip: Callable[[str], bool]) -> None:
    if not entity:
        raise QuotaError(INVALID_REQUEST, "The entity is empty.")
    for kind, name in entity:
        if kind not in TYPES:
            raise QuotaError(INVALID_REQUEST, f"The entity type {kind} is not one of {', '.join(TYPES)}.")
        if name == "":
            raise QuotaError(INVALID_REQUEST, f"The name of a {kind} is empty.")
        if name in (".", ".."):
            raise QuotaError(UNKNOWN_SERVER_ERROR, f"ZooKeeper cannot have a node for the {kind} {name}.")
    names = dict(entity)
    if IP in names and len(names) > 1:
        raise QuotaError(INVALID_REQUEST, "An ip cannot be combined with a user or client-id.")
    address = names.get(IP)
    if address is not None and not valid_ip(address):
        raise QuotaError(INVALID_REQUEST, f"{address} is neither an IP address nor a host name that resolves.")


def _check_value(kind: Kind | None, key: str, value: float) -> None:
    if kind is None:
        raise QuotaError(INVALID_REQUEST, f"The entity cannot have the quota {key}.")
    if not value > 0:  # nor NaN
        raise QuotaError(INVALID_REQUEST, f"{key} must be greater than 0.")
    if kind is Kind.DOUBLE:
        return
    if value > float(kind.value):  # which rounds up the largest LONG, as Java does
        raise QuotaError(INVALID_REQUEST, f"{key} must be at most {kind.value}.")
    if value % 1 > _FRACTION:
        raise QuotaError(INVALID_REQUEST, f"{key} must be a whole number.")
