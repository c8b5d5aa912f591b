"""Which quota a client has: the order of Kafka's default ClientQuotaCallback.

The most specific entity wins: user and client id, user and any client id, user, any user and client id, any user and
any client id, any user, client id, any client id. Clients to which the same *tags* (user, client id) apply share one
quota; an empty tag stands for "all": all clients of alice share the quota of the user alice, while each client id has
the quota of the default client id for itself.

A client without a client id has no quota of a client id, and falls from `users/U/clients/<default>` back to that of its
user, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from odradek.security.addresses import canonical
from odradek.security.quotas.entities import CLIENT_ID, IP, USER, Entity

ALL = ""
DEFAULT = None
Tags = tuple[str, str]
_Pair = tuple[str | None, str | None]


class ClientQuota(NamedTuple):
    """The bound for all clients with these tags together, per second."""

    tags: Tags
    bound: float


class ClientQuotas:
    """The quotas of one key, by user and client id."""

    def __init__(self, quotas: Mapping[Entity, Mapping[str, float]], key: str) -> None:
        self._bounds = {
            _pair(entity): values[key] for entity, values in quotas.items() if _applies(entity, values, key)
        }

    def find(self, user: str, client_id: str) -> ClientQuota | None:
        """The quota of a client; None when it has none."""
        tags = self.tags(user, client_id)
        bound = self._bound(*tags)
        return None if bound is None else ClientQuota(tags, bound)

    def tags(self, user: str, client_id: str) -> Tags:
        """The user and client id that share a quota, each ALL where it does not matter."""
        for pair, tags in (
            ((user, client_id), (user, client_id)), ((user, DEFAULT), (user, client_id)), ((user, ALL), (user, ALL)),
            ((DEFAULT, client_id), (user, client_id)), ((DEFAULT, DEFAULT), (user, client_id)),
            ((DEFAULT, ALL), (user, ALL)),
        ):  # fmt: skip
            if pair in self._bounds:
                return tags
        return ALL, client_id

    def _bound(self, user: str, client_id: str) -> float | None:
        pairs: tuple[_Pair, ...] = ()
        if user and client_id:
            pairs = (user, client_id), (user, DEFAULT), (DEFAULT, client_id), (DEFAULT, DEFAULT)
        elif user:
            pairs = (user, ALL), (DEFAULT, ALL)
        elif client_id:
            pairs = (ALL, client_id), (ALL, DEFAULT)
        return next((self._bounds[pair] for pair in pairs if pair in self._bounds), None)


def _applies(entity: Entity, values: Mapping[str, float], key: str) -> bool:
    return entity[0][0] != IP and key in values


def _pair(entity: Entity) -> _Pair:
    names = dict(entity)
    return names.get(USER, ALL), names.get(CLIENT_ID, ALL)


class AddressQuotas:
    """The quotas of one key, by IP address; as in Kafka, the notation of an address does not matter."""

    def __init__(self, quotas: Mapping[Entity, Mapping[str, float]], key: str) -> None:
        found = {entity[0][1]: values[key] for entity, values in quotas.items() if entity[0][0] == IP and key in values}
        self._bounds = {canonical(name): bound for name, bound in found.items() if name is not None}
        self._default = found.get(DEFAULT)

    def __bool__(self) -> bool:
        return bool(self._bounds) or self._default is not None

    def find(self, address: str) -> float | None:
        """The bound of an IP address, or the default of all addresses; None when there is none."""
        return self._bounds.get(canonical(address), self._default)
