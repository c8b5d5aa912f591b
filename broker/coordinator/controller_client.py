"""The coordinator's requests to this broker's controller (cluster.internal): topics, producer ids, brokers, offsets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from odradek.cluster import internal
from odradek.groups.offsets import TopicPartition
from odradek.ipc import forward
from odradek.ipc.forward import Forwarded
from odradek.protocol import errors
from odradek.workers.dispatch.unregistered_brokers import AddressLookups
from odradek.workers.forwarding.upstream import Upstream

_THERE = (errors.NONE, errors.TOPIC_ALREADY_EXISTS)  # in the second case the metadata will have it soon


class ControllerClient(Upstream):
    """The channel to the controller, with a method for each request."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir / "controller.sock")
        self._lookups = AddressLookups(
            lambda answered: self.request(internal.LOOK_FOR_BROKERS, {}, lambda _: answered())
        )

    def request(self, key: int, body: dict[str, Any], done: Callable[[dict[str, Any] | None], None]) -> None:
        """Send an internal request; `done(None)` when the controller could not answer."""

        def answered(flags: int, data: bytes) -> None:
            done(internal.decode(data) if flags == forward.OK else None)

        self.send(Forwarded(0, key, 0, None, "", "", internal.encode(body)), answered)

    def create_topic(self, name: str, failed: Callable[[str], None]) -> None:
        """Request an internal topic; `failed(why)` if the controller refuses, else the metadata will have it."""

        def answered(body: dict[str, Any] | None) -> None:
            code, message = body["errors"][name] if body else (-1, "the controller did not answer")
            if code not in _THERE:
                failed(f"{message} ({code})")

        self.request(internal.AUTO_CREATE, {"topics": [name]}, answered)

    def look_for_brokers(self) -> None:
        """See `workers.dispatch.coordination.Coordinator`."""
        self._lookups.request()

    def tree_commit(self, group: str, offsets: dict[TopicPartition, int], done: Callable[[bool], None]) -> None:
        """See `workers.dispatch.coordination.Coordinator`."""
        rows = [[topic, index, offset] for (topic, index), offset in offsets.items()]

        def answered(body: dict[str, Any] | None) -> None:
            done(body is not None and not any(code for _, _, code in body["errors"]))

        self.request(internal.COMMIT_V0, {"group": group, "offsets": rows}, answered)

    def tree_fetch(
        self, group: str, partitions: list[TopicPartition], done: Callable[[dict[TopicPartition, int] | None], None]
    ) -> None:
        """See `workers.dispatch.coordination.Coordinator`."""

        def answered(body: dict[str, Any] | None) -> None:
            if body is None:
                done(None)
            else:
                done({(t, i): offset for t, i, offset, code in body["offsets"] if not code and offset is not None})

        self.request(internal.FETCH_V0, {"group": group, "partitions": [list(tp) for tp in partitions]}, answered)
