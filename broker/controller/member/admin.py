"""The operations of a cluster member that request handlers call: all metadata changes, and some reads.

Any broker writes topics and configs into the tree; the elected controller alone does the rest.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from odradek.broker.controller.elected.elected import Elected
from odradek.broker.controller.member.dynamic_configs import DynamicConfigs
from odradek.broker.controller.security import acl_writes, node_kinds
from odradek.broker.controller.security.security_nodes import SecurityNodes
from odradek.broker.controller.users.user_nodes import UserNodes
from odradek.cluster import admin_writes
from odradek.cluster.configs import configdef
from odradek.cluster.decisions.planning import TopicPlan
from odradek.cluster.decisions.reassignment import Assignment
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.cluster.metadata.view import View
from odradek.cluster.rules.errors import ApiError, Outcomes
from odradek.cluster.state import ClusterState
from odradek.cluster.tree.tree import NodeExists, NoNode, NotDone, TooLarge, TreeError, TreeUnavailable
from odradek.cluster.tree.znodes import MalformedNode, Partition
from odradek.cluster.tree.zookeeper import ZooKeeperTree
from odradek.ipc.metadata import MetadataRegion
from odradek.protocol.errors import (
    INVALID_REQUEST,
    NOT_CONTROLLER,
    REQUEST_TIMED_OUT,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from odradek.security.acls.acl_types import Acls
from odradek.security.quotas.entities import Entity

log = logging.getLogger(__name__)

T = TypeVar("T")


class Administration(ABC):
    """The part of broker.controller.member.member.Member that handlers call. Errors are ApiError."""

    def __init__(self, config: Any, tree: ZooKeeperTree, store: ClusterState, view: View) -> None:
        self.config = config
        self.version = 0  # of the last published snapshot
        self._tree = tree
        self._store = store
        self._view = view
        self._configs = DynamicConfigs(view, tree, self._configs_changed)
        self.security = SecurityNodes(tree, node_kinds.kinds(config), self._set_changed)
        self.users = UserNodes(tree, config, self._set_changed, self._stored)

    @property
    @abstractmethod
    def elected(self) -> Elected | None:
        """This broker's controller term, None while it is not the controller."""

    @abstractmethod
    def _guarded(self, action: Callable[[], Any]) -> None:
        """Run an action that is retried later if ZooKeeper is unavailable."""

    @abstractmethod
    def _requests_done(self) -> Iterator[None]:
        """Wait, step by step, until all controller requests received so far are carried out."""

    @abstractmethod
    def _set_changed(self) -> None:
        """There is something to publish."""

    @abstractmethod
    def _configs_changed(self, topics: Collection[str]) -> None:
        """The effective configs of these topics may have changed."""

    def publish_security(self, region: MetadataRegion) -> bool:
        """Publish the security metadata that the next snapshot names; returns whether there was anything new."""
        published = self.security.publish(region, self.users.nodes)
        self._view.security = self.security.version
        return published

    def require_controller(self) -> None:
        """Raise ApiError NOT_CONTROLLER unless this broker is the elected controller."""
        self._require_elected()

    def snapshot_at(self, version: int) -> Snapshot:
        """The current metadata, to publish as `version`."""
        return self._view.snapshot(version, self.config)

    @property
    def snapshot(self) -> Snapshot:
        """The current metadata, published or not."""
        return self.snapshot_at(self.version)

    @property
    def topics(self) -> dict[str, dict[str, Any]]:
        """Topics by name, as in snapshots."""
        return self._view.topics

    def _stored(self, write: Callable[[], T]) -> T:
        try:
            return write()
        except TreeError as error:
            raise self._unwritable(error) from error
        except MalformedNode as error:
            raise ApiError(UNKNOWN_SERVER_ERROR, f"A znode is malformed: {error}") from error

    def _unwritable(self, error: TreeError) -> ApiError:
        """The first two errors make clients retry; the others must not look like a disk error."""
        log.error("metadata: %r", error)
        where = f"ZooKeeper (zookeeper.connect={self.config['zookeeper.connect']})"
        if isinstance(error, NotDone):
            return ApiError(NOT_CONTROLLER, f"There is no connection to {where}: nothing was changed.")
        if isinstance(error, TreeUnavailable):
            return ApiError(REQUEST_TIMED_OUT, f"{where} did not respond: the change may have been made. {error}")
        if isinstance(error, NoNode):
            return ApiError(UNKNOWN_TOPIC_OR_PARTITION, f"{where} has no node {error}.")
        if isinstance(error, TooLarge):
            return ApiError(INVALID_REQUEST, f"{where} rejected the size of a znode: {error}.")
        return ApiError(UNKNOWN_SERVER_ERROR, f"{where} rejected the change: {error!r}")

    def _require_elected(self) -> Elected:
        if self.elected is None:
            raise ApiError(NOT_CONTROLLER, "This is not the correct controller for this cluster.")
        return self.elected

    def create_topic(self, plan: TopicPlan) -> Generator[None, None, bytes]:
        """Create a topic and return its id. The elected controller, perhaps this broker, elects its leaders."""
        try:
            topic_id = admin_writes.create_topic(self._tree, plan)
        except NodeExists:  # another broker was faster
            raise ApiError(TOPIC_ALREADY_EXISTS, f"Topic '{plan.name}' already exists.") from None
        except TreeError as error:
            raise self._unwritable(error) from error
        yield from self._apply_topic_changes()
        return topic_id

    def add_partitions(self, name: str, replicas: dict[int, list[int]]) -> Iterator[None]:
        """Add planned partitions to a topic."""
        self._stored(lambda: admin_writes.add_partitions(self._tree, name, replicas))
        yield from self._apply_topic_changes(name)

    def _apply_topic_changes(self, changed: str | None = None) -> Iterator[None]:
        """If this broker is controller, act at once and wait for its replicas; else the controller's watch fires."""
        elected = self.elected
        if elected is not None:
            self._guarded(elected.topics.changed if changed is None else lambda: elected.topics.topic_changed(changed))
            yield from self._requests_done()

    def delete_topic(self, name: str, done: Callable[[ApiError | None], None]) -> Callable[[], object]:
        """Delete a topic; calls `done` when it is gone, unless the returned function is called before."""
        elected = self._require_elected()
        self._stored(lambda: admin_writes.delete_topic(self._tree, name))
        forget = elected.deletions.when_deleted(name, done)
        self._guarded(elected.deletions.changed)
        return forget

    def set_topic_config(self, name: str, configs: dict[str, str]) -> None:
        """Replace a topic's overrides (already validated)."""
        self._stored(lambda: admin_writes.set_topic_config(self._tree, name, configs))
        self._configs.topic_changed(name)
        self._guarded(self._configs.read)

    @abstractmethod
    def check_link(self, settings: Mapping[str, str]) -> None:
        """Raise ValueError where connections to other brokers cannot go over to these settings of this broker."""

    def set_broker_config(self, broker: int | None, configs: dict[str, str]) -> None:
        """Replace dynamic broker configs (already validated)."""
        self._stored(lambda: admin_writes.set_broker_config(self._tree, broker, configs))
        self._configs.stale()
        self._guarded(self._configs.read)

    def set_quotas(self, entity: Entity, quotas: Mapping[str, float]) -> None:
        """Replace the client quotas of an entity (already validated)."""
        self._stored(lambda: admin_writes.set_quotas(self._tree, entity, quotas))
        self._configs.stale()
        self._guarded(self._configs.read)

    @property
    def acls(self) -> Acls:
        """The ACLs, published or not."""
        return self.security.metadata.acls

    def change_acls(self, decide: acl_writes.Decide) -> Generator[None, None, Any]:
        """Change ACLs, on whichever broker; returns the answer that `decide` gives. ApiError."""
        try:
            return (yield from acl_writes.change(self.security, decide))
        except TreeError as error:
            raise self._unwritable(error) from error

    def _topic_setting(self, topic: str, name: str) -> Any:
        overrides = self._view.topics[topic]["config"] if topic in self._view.topics else {}
        dynamic = (self._view.dynamic.get(str(self._view.broker), {}), self._view.dynamic.get("", {}))
        return configdef.resolve_one(name, overrides, dynamic, self.config)

    def producer_ids(self) -> tuple[int, int]:
        """(first, count) of a block of producer ids. ApiError."""
        return self._stored(lambda: admin_writes.producer_ids(self._tree, self._view.broker))

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Commit an offset where ZooKeeper-based consumers read it."""
        self._store.commit_offset(group, topic, partition, offset)

    def committed_offset(self, group: str, topic: str, partition: int) -> int | None:
        """Read an offset where ZooKeeper-based consumers write it."""
        return self._store.committed_offset(group, topic, partition)

    def controlled_shutdown(self, broker: int, epoch: int) -> list[tuple[str, int]]:
        """Move leadership off `broker`; returns the partitions it still leads. ApiError."""
        elected = self._require_elected()
        return self._stored(lambda: elected.elections.controlled_shutdown(broker, epoch))

    def partitions(self) -> list[Partition]:
        """All partitions that are not being deleted. ApiError NOT_CONTROLLER."""
        return list(self._require_elected().context.partitions())

    def elect_leaders(self, partitions: Collection[Partition], unclean: bool) -> Outcomes:
        """Elect preferred leaders (or any) for partitions; returns the outcome of each."""
        elected = self._require_elected()
        refused = self._stored(lambda: elected.elections.elect(partitions, unclean))
        return {partition: refused.get(partition) for partition in partitions}

    def reassign(self, targets: Mapping[Partition, Sequence[int] | None]) -> dict[Partition, ApiError]:
        """Reassign partitions to other replicas, None: cancel; returns the refused ones."""
        elected = self._require_elected()
        return self._stored(lambda: elected.reassignments.request(targets))

    def moves(self) -> dict[Partition, Assignment]:
        """Reassignments in progress."""
        return self._require_elected().reassignments.under_way()
