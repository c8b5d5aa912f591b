"""The connections to a cluster's brokers, and metadata, which any of them can serve.

Retriable failures, such as a leader that moves or a broker that dies, are retried with growing pauses until
kafka.default.api.timeout.ms is over. A topic that a broker does not know is asked for a few times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

from kafka.protocol.metadata import MetadataRequest

from odradek.pipeline.errors import UnknownTopic
from odradek.pipeline.wire.connection import Connection
from odradek.pipeline.wire.retries import RetryLater, insist
from odradek.pipeline.wire.settings import Address, Settings

Found = TypeVar("Found")
_PAUSES = (1, 2, 4, 8)  # times kafka.retry.backoff.ms, between answers without a topic


class Connections:
    """One connection to each broker in use; a context manager, which closes them."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self.settings = Settings.of(kafka)
        self._open: dict[Address, Connection] = {}
        self._muted_until: dict[Address, float] = {}  # of dropped connections: a quota outlives its connection
        self._known: tuple[Address, ...] = ()
        self.informant = self.settings.servers[0]  # the broker that last returned metadata
        self._failures = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        for address in list(self._open):
            self.drop(address)

    def at(self, address: Address) -> Connection:
        """The connection to a broker; OSError when it cannot connect."""
        if address not in self._open:
            self._open[address] = Connection(address, self.settings, self._muted_until.get(address, 0))
        return self._open[address]

    def drop(self, address: Address) -> None:
        """Close the connection to a broker that failed, if there is one, and forget its pending requests."""
        self._failures += 1
        connection = self._open.pop(address, None)
        if connection is not None:
            self._muted_until[address] = connection.muted_until
            connection.close()

    def call(self, address: Address, request: Any) -> Any:
        """A broker's response; RetryLater when there is none."""
        try:
            return self.at(address).call(request)
        except OSError as error:
            self.drop(address)
            raise RetryLater(f"{address[0]}:{address[1]}: {error}") from None

    def insist(self, attempt: Callable[[], Found]) -> Found:
        """Retry `attempt` while it raises RetryLater and return its result; each failure rotates `in_turn`."""

        def counted() -> Found:
            try:
                return attempt()
            except RetryLater:
                self._failures += 1
                raise

        return insist(self.settings, counted)

    def insist_known(self, attempt: Callable[[], Found]) -> Found:
        """The same, and retry a few times while it raises UnknownTopic: a broker's metadata may lag behind."""
        for pause in _PAUSES:
            try:
                return self.insist(attempt)
            except UnknownTopic:
                self._failures += 1  # the next attempt asks another broker
                time.sleep(min(pause * self.settings.backoff, self.settings.backoff_max))
        return self.insist(attempt)

    # -- what any broker knows

    def metadata(self, names: list[str] | None) -> Any:
        """The metadata of these topics (None: of all), from any broker that knows the cluster."""
        return self.insist(lambda: self.ask_anybody(names))

    def ask_anybody(self, names: list[str] | None, *, create: bool = False) -> Any:
        """The same with one try for each broker; RetryLater when none responds.

        create: as a producer asks, for which brokers with auto.create.topics.enable create a missing topic.
        """
        asked = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        why = "no broker responds"
        for address in self.in_turn():
            try:
                request = MetadataRequest(topics=asked, allow_auto_topic_creation=create, min_version=4)
                answer = self.at(address).call(request)
            except OSError as error:
                self.drop(address)
                why = f"no broker responds; {address[0]}:{address[1]}: {error}"
                continue
            if answer.brokers:  # a broker that has just started knows no brokers and no topics
                self._known = tuple((broker.host, broker.port) for broker in answer.brokers)
                self.informant = address
                return answer
        raise RetryLater(why)

    def in_turn(self) -> list[Address]:
        """All known addresses: connected brokers first, rotated by one after each failure."""
        all_of_them = list(dict.fromkeys((*self._open, *self._known, *self.settings.servers)))
        first = self._failures % len(all_of_them)
        return all_of_them[first:] + all_of_them[:first]
