"""The interface of the controller process for its handlers, and helpers that several of them share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from odradek.cluster.decisions.planning import TopicDefaults, TopicPlan
from odradek.cluster.decisions.reassignment import Assignment
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.cluster.rules.errors import ApiError, Outcomes
from odradek.cluster.tree.znodes import Partition
from odradek.protocol.errors import INVALID_REQUEST, NONE


class Owner(Protocol):
    """The metadata, and every change to it. Changes raise ApiError and are in the tree when they return.

    Large changes run in steps (broker.process.steps): the first step writes the change to the tree, so it will be done.
    """

    def create_topic(self, plan: TopicPlan) -> Generator[None, None, bytes]:
        """Create a topic; returns its id."""

    def add_partitions(self, name: str, replicas: dict[int, list[int]]) -> Iterator[None]:
        """Add partitions to a topic."""

    def delete_topic(self, name: str, done: Callable[[ApiError | None], None]) -> Callable[[], object]:
        """Delete a topic and call `done` when it is gone, unless the returned function cancels the call before."""

    def set_topic_config(self, name: str, configs: dict[str, str]) -> None:
        """Replace a topic's config overrides."""

    def set_broker_config(self, broker: int | None, configs: dict[str, str]) -> None:
        """Replace the dynamic configs of a broker, or (None) of the cluster."""

    def partitions(self) -> list[Partition]:
        """All partitions. Raises ApiError NOT_CONTROLLER."""

    def elect_leaders(self, partitions: Collection[Partition], unclean: bool) -> Outcomes:
        """Elect preferred leaders (or any) for partitions; returns the outcome of each."""

    def reassign(self, targets: Mapping[Partition, Sequence[int] | None]) -> dict[Partition, ApiError]:
        """Move partitions to other replicas (None: back); returns the errors of the refused ones."""

    def moves(self) -> dict[Partition, Assignment]:
        """The moves under way."""


class Controller(Protocol):
    """The controller process as its handlers see it."""

    @property
    def owner(self) -> Owner:
        """The metadata."""

    @property
    def snapshot(self) -> Snapshot:
        """The metadata as it is now."""

    @property
    def config(self) -> Any:
        """This broker's static configuration."""

    def defaults(self) -> TopicDefaults:
        """num.partitions and default.replication.factor."""

    def begin(self, work: Iterator[None]) -> None:
        """Run `work` in steps."""

    def when_published(self, action: Callable[[], None]) -> None:
        """Call `action` when every process knows all changes made so far."""

    def after(self, milliseconds: int, action: Callable[[], None]) -> Callable[[], object]:
        """Call `action` after a delay, unless the returned function cancels it first."""


def attempt(action: Callable[[], Any]) -> tuple[int, str | None]:
    """(error code, message) of an action that raises ApiError when it is refused."""
    try:
        action()
    except ApiError as error:
        return error.code, error.message
    return NONE, None


def twice(names: Iterable[Any]) -> set[Any]:
    """The names that occur more than once."""
    return {name for name, count in Counter(names).items() if count > 1}


def refuse_duplicate(message: str) -> ApiError:
    """The error for a resource or topic that a request names more than once."""
    return ApiError(INVALID_REQUEST, message)
