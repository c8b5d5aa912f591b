"""The metadata tree: nodes with data, versions and watches, as in ZooKeeper; one interface, several stores.

A path is `/a/b/c`. Each node has bytes, a version that counts its changes and a cversion that counts changes of its
children. A write may name the version it expects (-1: any). `multi` does all its operations or none. Watches fire
once; the store queues their events until `poll` is called, so a write never runs a callback.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

CREATED, DELETED, CHANGED, CHILDREN = "created", "deleted", "changed", "children"
DISCONNECTED, CONNECTED = "disconnected", "connected"  # the connection to the store
ANY_VERSION = -1


class TreeError(Exception):
    """A refused operation; the message is its path."""


class NoNode(TreeError):
    """The node, or the parent of a node to create, does not exist."""


class NodeExists(TreeError):
    """A node to create already exists."""


class BadVersion(TreeError):
    """The node does not have the expected version."""


class NotEmpty(TreeError):
    """A node to delete has children."""


class NoChildrenForEphemerals(TreeError):
    """An ephemeral node cannot have children."""


class TooLarge(TreeError):
    """The transaction exceeds the store's limit in bytes; nothing was done."""


class TreeUnavailable(TreeError):
    """The store cannot be reached or written; the operation may or may not have happened."""


class NotDone(TreeUnavailable):
    """The operation did not happen: the store is not connected, or this process is fenced."""


class Stat(NamedTuple):
    """A node's counters. zxids number transactions, times are ms since the epoch, owner 0 means not ephemeral."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    owner: int
    data_length: int
    children: int
    pzxid: int


class Event(NamedTuple):
    """A change that a watch saw: CREATED, DELETED, CHANGED (data) or CHILDREN, and the watched path.

    DISCONNECTED and CONNECTED need no watch and have the path `/`: all watches are lost, or can be set again.
    """

    kind: str
    path: str


class Create(NamedTuple):
    """Create a node; `sequence` appends ten digits: the number of children ever created below the parent."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class Set(NamedTuple):
    """Replace a node's data."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Delete a node without children."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Require a node to have a version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Set | Delete | Check


def parent(path: str) -> str:
    """The path above: `/a` for `/a/b`, `/` for `/a`."""
    return path.rpartition("/")[0] or "/"


def check_path(path: str) -> None:
    """ValueError unless `path` is absolute, without empty, `.` or `..` parts and without NUL."""
    if path == "/":
        return
    parts = path.split("/")
    if len(parts) < 2 or parts[0] or any(part in ("", ".", "..") for part in parts[1:]) or "\0" in path:
        raise ValueError(f"{path!r} is not a path of the metadata tree")


class Tree(ABC):
    """A store of the tree. It deletes ephemeral nodes when the session that created them ends."""

    @property
    @abstractmethod
    def session(self) -> int:
        """The session that ephemeral nodes belong to (`Stat.owner`), 0 while there is no connection."""

    @abstractmethod
    def multi(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
        """Do all of `operations` in order, or none and raise the first refusal.

        Results: the created path, the new Stat of a Set, None for the rest. Durable when it returns.
        """

    def each(self, transactions: Sequence[Sequence[Operation]]) -> list[list[str | Stat | None] | TreeError]:
        """`multi` for each, with its error in place of its result; pipelined where the store supports it."""
        return [self._done_or_refused(operations) for operations in transactions]

    def _done_or_refused(self, operations: Sequence[Operation]) -> list[str | Stat | None] | TreeError:
        try:
            return self.multi(operations)
        except TreeError as error:
            return error

    @abstractmethod
    def get(self, path: str, watch: bool = False) -> tuple[bytes, Stat]:
        """A node's data and counters; `watch` requests one event when its data changes or it is deleted. NoNode."""

    def latest(self, path: str) -> tuple[bytes, Stat]:
        """`get` after a sync: includes the latest write of any client, never a server's stale data. NoNode."""
        return self.get(path)

    def get_many(self, paths: Sequence[str], watch: bool = False) -> list[tuple[bytes, Stat] | None]:
        """`get` of each, None where there is no such node; pipelined where the store supports it."""
        return [self._get_or_none(path, watch) for path in paths]

    def _get_or_none(self, path: str, watch: bool) -> tuple[bytes, Stat] | None:
        try:
            return self.get(path, watch)
        except NoNode:
            return None

    @abstractmethod
    def exists(self, path: str, watch: bool = False) -> Stat | None:
        """A node's counters, or None; `watch` requests one event when it is created, changed or deleted."""

    @abstractmethod
    def children(self, path: str, watch: bool = False) -> list[str]:
        """Names of a node's children, sorted; `watch` requests one event when they change. NoNode."""

    @abstractmethod
    def poll(self) -> list[Event]:
        """Events since the last call, in order."""

    @abstractmethod
    def fileno(self) -> int | None:
        """A descriptor that is readable when `poll` has events; None when only this process's writes cause events."""

    @abstractmethod
    def close(self) -> None:
        """End the session and delete its ephemeral nodes."""

    def create(self, path: str, data: bytes = b"", ephemeral: bool = False, sequence: bool = False) -> str:
        """Create a node and return its path. NodeExists, NoNode (parent), NoChildrenForEphemerals."""
        created = self.multi([Create(path, data, ephemeral, sequence)])[0]
        assert isinstance(created, str)
        return created

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replace a node's data. NoNode, BadVersion."""
        stat = self.multi([Set(path, data, version)])[0]
        assert isinstance(stat, Stat)
        return stat

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node. NoNode, BadVersion, NotEmpty."""
        self.multi([Delete(path, version)])

    def find(self, path: str) -> bytes | None:
        """A node's data, None when there is no such node."""
        try:
            return self.get(path)[0]
        except NoNode:
            return None

    def ensure(self, path: str) -> None:
        """Create `path` and its missing parents, without data; other processes may do so at the same time."""
        while missing := self.missing(path):
            try:
                self.multi([Create(path) for path in missing])
            except NodeExists:
                continue

    def missing(self, path: str) -> list[str]:
        """The nodes to create for `path` to exist, from the top."""
        missing: list[str] = []
        while path != "/" and self.exists(path) is None:
            missing.append(path)
            path = parent(path)
        return missing[::-1]

    def removal(self, path: str) -> list[Operation]:
        """The operations that delete `path` and all below it; none when it does not exist."""
        try:
            below = self.children(path)
        except NoNode:
            return []
        operations: list[Operation] = []
        for name in below:
            operations.extend(self.removal(f"{path.rstrip('/')}/{name}"))
        return [*operations, Delete(path)]
