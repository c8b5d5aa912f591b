"""The metadata tree in ZooKeeper, through kazoo: what ZooKeeper-mode Kafka brokers, tools and old consumers share.

Layout    : whatever the caller writes; paths are below the chroot of `zookeeper.connect`, which is made if missing.
Owner     : one session of this process. kazoo's threads only queue events here and ring a descriptor; every method is
            called from one thread.
Crash rule: a call that raises TreeUnavailable may or may not have been done. Nothing is sent while there is no
            connection: what waited for one would be done later, by somebody who may no longer be in office.
            A session that a process before this one has left is ended by `close` alone, never by a failure to connect:
            with it ZooKeeper would delete the ephemeral nodes of a broker that serves on. A process that ends without
            `close` leaves its session likewise, to who comes next.
With the connection all watches are lost; CONNECTED tells when there is one again, and `session` whether it is the same
session. In another one the ephemeral nodes of the former are gone, or soon will be.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.cluster.tree.tree import (
    CHANGED,
    CHILDREN,
    CONNECTED,
    CREATED,
    DELETED,
    DISCONNECTED,
    BadVersion,
    Create,
    Delete,
    Event,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotDone,
    NotEmpty,
    Operation,
    Set,
    Stat,
    TooLarge,
    Tree,
    TreeError,
    TreeUnavailable,
    check_path,
)

if TYPE_CHECKING:
    from kazoo.client import KazooClient, TransactionRequest
    from kazoo.interfaces import IAsyncResult

_OPEN = "/consumers"  # consumers of 0.8 make their nodes below it, whoever they are
_LARGEST = 0xFFFFF - 256  # bytes: jute.maxbuffer, above which a server ends the connection, without the request's head
_PER_OPERATION = 128  # bytes beside path and data: its header, an ACL, the version
_SECRET = ("/config/users", "/config/brokers", "/kafka-acl", "/delegation_token")  # Kafka's, and the ACLs
_KINDS = {"CREATED": CREATED, "DELETED": DELETED, "CHANGED": CHANGED, "CHILD": CHILDREN}


class ConnectError(Exception):
    """ZooKeeper cannot be used; the message says what to change."""


class NoAnswer(ConnectError):
    """No server of it answers, which another time it may."""


class _Watch(NamedTuple):
    """What kazoo calls, in a thread of its own. Equal ones are one to it: a deleted node is told once."""

    path: str
    tell: Callable[[Event], None]

    def __call__(self, event: Any) -> None:
        kind = _KINDS.get(event.type)
        if kind is not None:  # else only that the connection, and the watch with it, is lost
            self.tell(Event(kind, self.path))


class ZooKeeperTree(Tree):
    """A session with ZooKeeper.

    `hosts` as in `zookeeper.connect`; times in ms: of the session (`zookeeper.session.timeout.ms`), and how long to
    wait for a first connection (`zookeeper.connection.timeout.ms`). `auth` is `scheme:credential`, for example
    `digest:user:password`; `set_acl` as in `zookeeper.set.acl`. `former` are the `credentials` of a session that a
    process before this one has left: it is gone on with if it still lasts, and left again by a failure to connect,
    unless it `ends` here. Raises ConnectError.
    """

    def __init__(
        self, hosts: str, session_ms: int = 18_000, connect_ms: int = 18_000, auth: str | None = None,
        set_acl: bool = False, former: tuple[int, bytes] | None = None, ends: bool = False,
    ) -> None:  # fmt: skip
        self._patience = session_ms / 1000
        self.session_ms = session_ms  # then what the server gives, within limits of its own
        self._former = former
        self._kept = former is not None and not ends
        self._set_acl = set_acl
        self._events: deque[Event] = deque()
        self._told = DISCONNECTED
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            self._client = self._connect(hosts, connect_ms / 1000, auth)
        except BaseException:
            if not self._kept:  # else kazoo's threads go on, and ring it: see `_give_up`
                os.close(self._bell)
            raise

    def _connect(self, hosts: str, patience: float, auth: str | None) -> KazooClient:
        from kazoo.client import KazooClient
        from kazoo.exceptions import KazooException

        credentials = [tuple(auth.split(":", 1))] if auth else None
        retry = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}
        client = KazooClient(
            hosts, timeout=self._patience, auth_data=credentials, connection_retry=retry, client_id=self._former
        )
        client.add_listener(self._state_changed)
        self._note_session_ms(client)
        try:
            if not _began(client, patience):
                raise NoAnswer(f"no ZooKeeper answers at {hosts} (zookeeper.connect)")
        except BaseException as error:
            self._give_up(client)
            if isinstance(error, KazooException):
                raise ConnectError(f"ZooKeeper at {hosts} refuses: {type(error).__name__} {error}") from None
            raise
        return client

    def _note_session_ms(self, client: KazooClient) -> None:
        """Have kazoo, which only logs what the server says of the session's time, tell it here."""
        connection = client._connection
        invoke = connection._invoke

        def noting(timeout: float, request: Any, xid: int | None = None) -> Any:
            answer = invoke(timeout, request, xid)
            if xid is None:  # of the first request of a connection alone
                self.session_ms = answer[0].time_out or self.session_ms  # 0: the session is over
            return answer

        connection._invoke = noting

    def _give_up(self, client: KazooClient) -> None:
        """End the session unless a former process left it to go on with: that one the next process goes on with.

        Its connection goes with this process, which cannot go on without a tree.
        """
        if not self._kept:
            client.stop()
            client.close()

    # -- what kazoo's threads call

    def _state_changed(self, state: str) -> None:
        """Losing the connection and then the session is one event to us: `session` tells the second."""
        kind = CONNECTED if state == "CONNECTED" else DISCONNECTED
        if kind != self._told:
            self._told = kind
            self._tell(Event(kind, "/"))

    def _tell(self, event: Event) -> None:
        self._events.append(event)
        os.eventfd_write(self._bell, 1)

    # -- the tree

    @property
    def session(self) -> int:
        client_id = self._client.client_id
        return client_id[0] if client_id else 0

    @property
    def credentials(self) -> tuple[int, bytes] | None:
        """What another process needs to go on with this session: its number and password."""
        return self._client.client_id

    def multi(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
        return self._results(operations, self._send(operations))

    def each(self, transactions: Sequence[Sequence[Operation]]) -> list[list[str | Stat | None] | TreeError]:
        under_way: list[IAsyncResult | TreeError] = []
        for operations in transactions:
            try:
                under_way.append(self._send(operations))
            except TreeError as error:
                under_way.append(error)
        return [self._results_or_refusal(*pair) for pair in zip(transactions, under_way, strict=True)]

    def _send(self, operations: Sequence[Operation]) -> IAsyncResult:
        _check_size(operations)
        transaction = self._client.transaction()
        for operation in operations:
            check_path(operation.path)
            self._add(transaction, operation)
        self._connected("/")
        return transaction.commit_async()

    def _results(self, operations: Sequence[Operation], sent: IAsyncResult) -> list[str | Stat | None]:
        results = self._await(sent, "/")
        _raise_first(operations, results)
        return [_result(operation, result) for operation, result in zip(operations, results, strict=True)]

    def _results_or_refusal(
        self, operations: Sequence[Operation], sent: IAsyncResult | TreeError
    ) -> list[str | Stat | None] | TreeError:
        if isinstance(sent, TreeError):
            return sent
        try:
            return self._results(operations, sent)
        except TreeError as error:
            return error

    def _add(self, transaction: TransactionRequest, operation: Operation) -> None:
        path = operation.path
        if isinstance(operation, Create):
            transaction.create(path, operation.data, self._acl(path), operation.ephemeral, operation.sequence)
        elif isinstance(operation, Set):
            transaction.set_data(path, operation.data, operation.version)
        elif isinstance(operation, Delete):
            transaction.delete(path, operation.version)
        else:
            transaction.check(path, operation.version)

    def _acl(self, path: str) -> list[Any]:
        """As Kafka does with `zookeeper.set.acl`: all may read what is no secret, only its maker may write."""
        from kazoo import security

        if not self._set_acl or path == _OPEN:
            return list(security.OPEN_ACL_UNSAFE)
        return [*security.CREATOR_ALL_ACL, *(() if path.startswith(_SECRET) else security.READ_ACL_UNSAFE)]

    def get(self, path: str, watch: bool = False) -> tuple[bytes, Stat]:
        check_path(path)
        return self._found(self._connected(path).get_async(path, self._watch(path, watch)), path)

    def latest(self, path: str) -> tuple[bytes, Stat]:
        check_path(path)
        self._await(self._connected(path).sync_async(path), path)
        return self.get(path)

    def get_many(self, paths: Sequence[str], watch: bool = False) -> list[tuple[bytes, Stat] | None]:
        for path in paths:
            check_path(path)
        client = self._connected("/")
        under_way = [client.get_async(path, self._watch(path, watch)) for path in paths]
        return [self._found_or_none(result, path) for result, path in zip(under_way, paths, strict=True)]

    def exists(self, path: str, watch: bool = False) -> Stat | None:
        check_path(path)
        stat = self._await(self._connected(path).exists_async(path, self._watch(path, watch)), path)
        return _stat(stat) if stat is not None else None

    def children(self, path: str, watch: bool = False) -> list[str]:
        check_path(path)
        names = self._await(self._connected(path).get_children_async(path, self._watch(path, watch)), path)
        return sorted(names)

    def _watch(self, path: str, wanted: bool) -> _Watch | None:
        return _Watch(path, self._tell) if wanted else None

    def poll(self) -> list[Event]:
        try:
            os.eventfd_read(self._bell)  # first: what comes from now on rings again
        except BlockingIOError:
            return []
        return [self._events.popleft() for _ in range(len(self._events))]

    def fileno(self) -> int:
        return self._bell

    def close(self) -> None:
        self._client.stop()
        self._client.close()
        os.close(self._bell)

    # -- calls

    def _connected(self, path: str) -> KazooClient:
        """The client to send something with, now."""
        if not self._client.connected:
            raise NotDone(f"{path}: there is no connection to ZooKeeper")
        return self._client

    def _await(self, result: IAsyncResult, path: str) -> Any:
        try:
            return result.get(timeout=self._patience)
        except Exception as error:
            raise _translated(error, path) from error

    def _found(self, result: IAsyncResult, path: str) -> tuple[bytes, Stat]:
        data, stat = self._await(result, path)
        return data, _stat(stat)

    def _found_or_none(self, result: IAsyncResult, path: str) -> tuple[bytes, Stat] | None:
        try:
            return self._found(result, path)
        except NoNode:
            return None


def _began(client: KazooClient, patience: float) -> bool:
    """Connect and see to the chroot; False when no server has answered to both within `patience` seconds.

    A connection that is lost in between is one that did not answer: kazoo makes the next.
    """
    from kazoo.exceptions import ConnectionLoss, SessionExpiredError

    until = time.monotonic() + patience
    connected = client.start_async()
    while connected.wait(max(0.0, until - time.monotonic())):
        try:
            client.ensure_path("/")
            return True
        except (ConnectionLoss, SessionExpiredError):
            if time.monotonic() >= until:
                break
    return False


def _raise_first(operations: Sequence[Operation], results: Sequence[Any]) -> None:
    """The refusal of a transaction is one operation's; the others only say that they were not done."""
    from kazoo import exceptions

    passed_over = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)
    for operation, result in zip(operations, results, strict=True):
        if isinstance(result, Exception) and not isinstance(result, passed_over):
            raise _translated(result, operation.path)
    if any(isinstance(result, Exception) for result in results):
        raise TreeUnavailable("/: ZooKeeper undid a transaction and says nothing of why")


def _result(operation: Operation, result: Any) -> str | Stat | None:
    if isinstance(operation, Create):
        return str(result)
    return _stat(result) if isinstance(operation, Set) else None


def _stat(stat: Any) -> Stat:
    return Stat(
        stat.czxid, stat.mzxid, stat.ctime, stat.mtime, stat.version, stat.cversion, stat.ephemeralOwner,
        stat.dataLength, stat.numChildren, stat.pzxid,
    )  # fmt: skip


def _translated(error: Exception, path: str) -> TreeError:
    """What kazoo raised, as the tree says it; other errors are raised again."""
    from kazoo import exceptions
    from kazoo.handlers.threading import KazooTimeoutError

    refusals: list[tuple[type[Exception], type[TreeError]]] = [
        (exceptions.NoNodeError, NoNode),
        (exceptions.NodeExistsError, NodeExists),
        (exceptions.BadVersionError, BadVersion),
        (exceptions.NotEmptyError, NotEmpty),
        (exceptions.NoChildrenForEphemeralsError, NoChildrenForEphemerals),
    ]
    for theirs, ours in refusals:
        if isinstance(error, theirs):
            return ours(path)
    if isinstance(error, (exceptions.KazooException, KazooTimeoutError)):
        return TreeUnavailable(f"{path}: ZooKeeper: {type(error).__name__} {error}".rstrip())
    raise error


def _check_size(operations: Sequence[Operation]) -> None:
    """TooLarge where ZooKeeper would rather end the connection, and all watches with it."""
    data = sum(len(operation.data) for operation in operations if isinstance(operation, (Create, Set)))
    size = data + sum(len(operation.path) + _PER_OPERATION for operation in operations)
    if size > _LARGEST:
        raise TooLarge(f"{operations[0].path}: {size} bytes at once, and ZooKeeper takes {_LARGEST} (jute.maxbuffer)")
