"""Handlers of requests from the broker's own processes (cluster.internal)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from odradek.cluster import internal
from odradek.cluster.decisions import planning
from odradek.cluster.rules.errors import ApiError
from odradek.cluster.tree.tree import TreeError
from odradek.protocol.errors import NONE, TOPIC_ALREADY_EXISTS, UNKNOWN_SERVER_ERROR, UNKNOWN_TOPIC_OR_PARTITION

if TYPE_CHECKING:
    from odradek.broker.controller.member.member import Member
    from odradek.broker.controller.metadata_owner import MetadataOwner

log = logging.getLogger(__name__)

Reply = Callable[[dict[str, Any]], None]


class Services(Protocol):
    """What these handlers need of the controller process."""

    owner: MetadataOwner | Member

    @property
    def config(self) -> Any:
        """The broker's configuration."""

    def defaults(self) -> planning.TopicDefaults:
        """The defaults of topics that are created now."""

    def when_published(self, action: Callable[[], None]) -> None:
        """Call `action` once every live worker has the current metadata."""


def auto_create(controller: Services, request: dict[str, Any], reply: Reply) -> Iterator[None]:
    """Create the requested topics, and answer when every live worker knows them."""
    errors = {}
    for name in request["topics"]:
        errors[name] = yield from _create(controller, name)
        yield
    controller.when_published(lambda: reply({"errors": errors}))


def _create(controller: Services, name: str) -> Generator[None, None, tuple[int, str | None]]:
    owner = controller.owner
    if name in owner.topics:
        return NONE, None
    try:
        snapshot = owner.snapshot
        # In a cluster the other brokers may not be up yet: one broker alone must not lower the replication factor.
        brokers = sys.maxsize if controller.config.clustered else len(snapshot.brokers)
        request = planning.automatic(name, brokers, owner.config)
        yield from owner.create_topic(planning.plan_topic(request, snapshot, controller.defaults()))
    except ApiError as error:
        if error.code == TOPIC_ALREADY_EXISTS:
            return NONE, None
        log.info("automatic creation of topic %s refused: %s", name, error)
        return error.code, error.message
    return NONE, None


def producer_ids(controller: Services, _request: dict[str, Any], reply: Reply) -> None:
    """Allocate a block of producer ids."""
    try:
        first, count = controller.owner.producer_ids()
    except ApiError as error:
        reply({"error": error.code})
        return
    reply({"first": first, "count": count})


def look_for_brokers(controller: Services, _request: dict[str, Any], reply: Reply) -> None:
    """Look the brokers up again: a worker refused a follower, or the coordinator refused markers."""
    controller.owner.look_for_brokers()
    reply({})


def commit_v0(controller: Services, request: dict[str, Any], reply: Reply) -> None:
    """Write offsets to where ZooKeeper-based consumers read them."""
    errors = []
    for topic, partition, offset in request["offsets"]:
        code = _known(controller, topic, partition)
        if code == NONE:
            try:
                controller.owner.commit_offset(request["group"], topic, partition, offset)
            except (TreeError, ValueError) as error:
                log.error("invalid offset of group %s: %s", request["group"], error)
                code = UNKNOWN_SERVER_ERROR
        errors.append([topic, partition, code])
    reply({"errors": errors})


def fetch_v0(controller: Services, request: dict[str, Any], reply: Reply) -> None:
    """Read offsets from where ZooKeeper-based consumers write them."""
    offsets = []
    for topic, partition in request["partitions"]:
        code, offset = _known(controller, topic, partition), None
        if code == NONE:
            try:
                offset = controller.owner.committed_offset(request["group"], topic, partition)
            except ValueError:
                code = UNKNOWN_SERVER_ERROR
        offsets.append([topic, partition, offset, code])
    reply({"offsets": offsets})


def _known(controller: Services, topic: str, partition: int) -> int:
    rows = controller.owner.topics.get(topic, {}).get("partitions", ())
    return NONE if 0 <= partition < len(rows) else UNKNOWN_TOPIC_OR_PARTITION


HANDLERS: dict[int, Callable[[Services, dict[str, Any], Reply], Iterator[None] | None]] = {
    internal.LOOK_FOR_BROKERS: look_for_brokers,
    internal.AUTO_CREATE: auto_create,
    internal.PRODUCER_IDS: producer_ids,
    internal.COMMIT_V0: commit_v0,
    internal.FETCH_V0: fetch_v0,
}
