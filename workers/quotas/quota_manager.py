"""The client quotas in force, as a worker applies them (Kafka's ClientQuotaManager and ClientRequestQuotaManager).

`record` counts what a client did and returns for how long it must be throttled. Which quota a client has is looked up
once: a change of quotas makes a new manager. A worker has no manager while no client has a quota.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from odradek.ipc.quotas import digest_of
from odradek.security.quotas.keys import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from odradek.security.quotas.rates import Window
from odradek.security.quotas.resolution import ClientQuotas
from odradek.workers.quotas.broker_rate import BrokerRate

if TYPE_CHECKING:
    from odradek.ipc.quotas import QuotaTable
    from odradek.security.quotas.entities import Entity

PRODUCE, FETCH, REQUEST = KINDS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
NS_A_PERCENT = 10_000_000  # the amount of REQUEST is time in ns; a percentage is of one second
_MOST_CLIENTS, _MOST_CHARACTERS = 10_000, 4 << 20  # client ids are the clients' choice, up to 32 KiB each


class _Limit(NamedTuple):
    bound: float
    rate: BrokerRate


class QuotaManager:
    """The quotas of all clients. The amounts: bytes of PRODUCE and FETCH, nanoseconds of REQUEST."""

    def __init__(
        self, quotas: Mapping[Entity, Mapping[str, float]], table: QuotaTable | None, window: Window
    ) -> None:  # fmt: skip
        self._table = table
        self._window = window
        self._quotas = {kind: ClientQuotas(quotas, kind) for kind in KINDS}
        self._limits: dict[tuple[str, str, str], _Limit | None] = {}
        self._characters = 0  # of the client ids in there
        self._shared: dict[tuple[str, ...], _Limit] = {}  # by the tags that clients share

    def record(self, kind: str, user: str, client_id: str, amount: int, now_ms: int) -> int:
        """Count `amount` for a client; returns the throttle time in ms. A negative amount takes back."""
        limit = self._limit(kind, user, client_id)
        if limit is None:
            return 0
        throttle_ms = limit.rate.record(amount, now_ms)
        return min(throttle_ms, self._window.most_ms) if kind == REQUEST else throttle_ms

    def limits(self, kind: str, user: str, client_id: str) -> bool:
        """Whether a client has a quota of this kind."""
        return self._limit(kind, user, client_id) is not None

    def most_at_once(self, user: str, client_id: str) -> float:
        """The bytes that a client may produce before they must be counted."""
        limit = self._limit(PRODUCE, user, client_id)
        return math.inf if limit is None else limit.rate.most_collected

    def most_in_window(self, kind: str, user: str, client_id: str) -> float | None:
        """What a client may do in a whole window; None without a quota."""
        limit = self._limit(kind, user, client_id)
        return None if limit is None else limit.bound * (self._window.samples - 1) * (self._window.width_ms // 1000)

    def _limit(self, kind: str, user: str, client_id: str) -> _Limit | None:
        key = kind, user, client_id
        try:
            return self._limits[key]
        except KeyError:
            self._characters += len(client_id)
            if len(self._limits) >= _MOST_CLIENTS or self._characters > _MOST_CHARACTERS:
                self._limits.clear()
                self._shared.clear()
                self._characters = len(client_id)
            limit = self._limits[key] = self._found(*key)
            return limit

    def _found(self, kind: str, user: str, client_id: str) -> _Limit | None:
        found = self._quotas[kind].find(user, client_id)
        if found is None:
            return None
        tags = kind, *found.tags
        if tags not in self._shared:
            bound = found.bound * NS_A_PERCENT if kind == REQUEST else found.bound
            self._shared[tags] = _Limit(bound, BrokerRate(self._table, digest_of(*tags), self._window, bound))
        return self._shared[tags]
