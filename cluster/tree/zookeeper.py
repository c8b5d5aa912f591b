"""The metadata tree in ZooKeeper, through kazoo; ZooKeeper-mode Kafka brokers, tools and old consumers share it.

Layout    : the caller's; paths are relative to the chroot of `zookeeper.connect`, which is created if missing.
Owner     : one session of this process. kazoo's threads only queue events here and signal a descriptor; one thread
            calls every method.
Crash rule: a call that raises TreeUnavailable may or may not have happened. Nothing is sent without a connection: a
            queued request would run later, when this broker may no longer be the controller.
            Only `close` ends a session that an earlier process left behind, never a failure to connect: ZooKeeper would
            then delete the ephemeral nodes of a broker that is still serving. A process that ends without `close` also
            leaves its session to the next process.
A lost connection loses all watches; CONNECTED reports a new connection, and `session` shows whether the session is the
same. With a new session, the ephemeral nodes of the old one are gone or soon will be.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.cluster.tree import znodes
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
    import ssl

    from kazoo.client import KazooClient, TransactionRequest
    from kazoo.interfaces import IAsyncResult

    from odradek.cluster.tree.zookeeper_security import AuthScheme, Login, TlsHandler
    from odradek.security.sasl.digest_md5 import DigestMd5Client

_OPEN = "/consumers"  # 0.8 consumers create their nodes below it, under any identity
_LARGEST = 0xFFFFF - 256  # bytes: jute.maxbuffer less the request header; a server closes the connection above it
_LOOK_S = 0.05  # between looks whether a connection cannot succeed
_PER_OPERATION = 128  # bytes besides path and data: its header, an ACL, the version
_SECRET = (  # Kafka's, the ACLs, and a key of ours
    "/config/users", "/config/brokers", "/kafka-acl", "/delegation_token", znodes.DECOY_KEY,
)  # fmt: skip
_KINDS = {"CREATED": CREATED, "DELETED": DELETED, "CHANGED": CHANGED, "CHILD": CHILDREN}


class ConnectError(Exception):
    """ZooKeeper cannot be used; the message says what to change."""


class NoAnswer(ConnectError):
    """No ZooKeeper server answers; a later attempt may succeed."""


class _Watch(NamedTuple):
    """kazoo's callback, in a thread of kazoo. kazoo treats equal ones as one, so a deletion is reported once."""

    path: str
    put: Callable[[Event], None]

    def __call__(self, event: Any) -> None:
        kind = _KINDS.get(event.type)
        if kind is not None:  # else the connection is lost, and the watch with it
            self.put(Event(kind, self.path))


class ZooKeeperTree(Tree):
    """A session with ZooKeeper.

    `hosts` as in `zookeeper.connect`; times in ms: of the session (`zookeeper.session.timeout.ms`), and how long to
    wait for a first connection (`zookeeper.connection.timeout.ms`). `auth` is `scheme:credential`, for example
    `digest:user:password`; `set_acl` as in `zookeeper.set.acl`; `tls` gives the context of each connection over TLS,
    `login` the mechanism of each authentication by SASL. Unless it is `patient`, TLS that cannot succeed ends the wait.
    `makes_chroot`: create the chroot if it is missing.
    `former` are the `credentials` of a session that an
    earlier process left behind: this one resumes it if it still exists, and a failure to connect leaves it again unless
    `ends` is set. Raises ConnectError.
    """

    def __init__(
        self, hosts: str, session_ms: int = 18_000, connect_ms: int = 18_000, auth: str | None = None,
        set_acl: bool = False, former: tuple[int, bytes] | None = None, ends: bool = False,
        tls: Callable[[], ssl.SSLContext] | None = None, login: Callable[[], DigestMd5Client] | None = None,
        patient: bool = True, makes_chroot: bool = True,
    ) -> None:  # fmt: skip
        self._timeout = session_ms / 1000
        self.session_ms = session_ms  # later the timeout that the server negotiates
        self._former = former
        self._keeps_session = former is not None and not ends
        self._set_acl = set_acl
        self._tls, self._user = tls, _user(auth, login)
        self._events: deque[Event] = deque()
        self._last_state = DISCONNECTED
        self._patient, self._makes_chroot = patient, makes_chroot
        self._opening = False  # a connection whose user is not known yet
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            self._client = self._connect(hosts, connect_ms / 1000)
        except BaseException:
            if not self._keeps_session:  # else kazoo's threads keep running and signal it: see `_give_up`
                os.close(self._bell)
            raise

    def _connect(self, hosts: str, timeout: float) -> KazooClient:
        from kazoo.client import KazooClient
        from kazoo.exceptions import KazooException

        retry = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}
        handler = self._handler()
        client = KazooClient(
            hosts, timeout=self._timeout, connection_retry=retry, client_id=self._former, handler=handler
        )
        for one in self._user:
            one.attach(client)
        client.add_listener(self._state_changed)
        self._record_session_ms(client)
        self._count_authenticated(client)
        try:
            hopeless = partial(handler.refuse, client.hosts) if handler is not None and not self._patient else None
            if not _began(client, timeout, self._acl("/") if self._makes_chroot else None, hopeless):
                why = f": {handler.failure}" if handler is not None and handler.failure else ""
                raise NoAnswer(f"ZooKeeper at {hosts} (zookeeper.connect) does not respond{why}")
        except BaseException as error:
            self._give_up(client)
            if isinstance(error, KazooException):
                refused = [one.refusals.failure for one in self._user if one.refusals.failure]
                why = "; ".join(refused) or f"{type(error).__name__} {error}"
                raise ConnectError(f"ZooKeeper at {hosts} refused the connection: {why}") from None
            raise
        return client

    def _handler(self) -> TlsHandler | None:
        """kazoo's threads; None for its own, without TLS."""
        if self._tls is None:
            return None
        from odradek.cluster.tree.zookeeper_security import TlsHandler

        return TlsHandler(self._tls)

    def _record_session_ms(self, client: KazooClient) -> None:
        """Record the session timeout that the server negotiates; kazoo itself only logs it.

        A server that starts can take the first request and never answer it. kazoo waits for a whole session then, which
        is over afterwards; a third of it leaves time for other tries.
        """
        connection = client._connection
        invoke = connection._invoke

        def noting(timeout: float, request: Any, xid: int | None = None) -> Any:
            if xid is not None:  # not the first request of a connection
                return invoke(timeout, request, xid)
            answer = invoke(min(timeout, self.session_ms / 3000), request, xid)
            self.session_ms = answer[0].time_out or self.session_ms  # 0: the session is over
            return answer

        connection._invoke = noting

    def _count_authenticated(self, client: KazooClient) -> None:
        """A connection counts once its user is known; for kazoo it does before."""
        connect = client._connection._connect

        def connecting(*where: Any) -> Any:
            self._opening = True  # also after a failure: for kazoo the connection counts until it handles that
            found = connect(*where)
            self._opening = False
            self._state_changed("CONNECTED")
            return found

        client._connection._connect = connecting

    def _give_up(self, client: KazooClient) -> None:
        """End the session, unless an earlier process left it behind: the next process resumes that one.

        Its connection closes with this process, which cannot continue without a tree.
        """
        if not self._keeps_session:
            client.stop()
            client.close()

    # -- called by kazoo's threads

    def _state_changed(self, state: str) -> None:
        """A lost connection followed by a lost session is one event; `session` shows the latter."""
        kind = CONNECTED if state == "CONNECTED" and not self._opening else DISCONNECTED
        if kind != self._last_state:
            self._last_state = kind
            self._put_event(Event(kind, "/"))

    def _put_event(self, event: Event) -> None:
        self._events.append(event)
        os.eventfd_write(self._bell, 1)

    # -- the tree

    @property
    def session(self) -> int:
        client_id = self._client.client_id
        return client_id[0] if client_id else 0

    @property
    def credentials(self) -> tuple[int, bytes] | None:
        """The session's id and password, with which another process can resume it."""
        client_id: tuple[int, bytes] | None = self._client.client_id
        return client_id

    @property
    def client(self) -> KazooClient:
        """kazoo's client, for what only an operator's shell needs: ACLs, all counters, unchecked paths."""
        return self._client

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
        """As Kafka with `zookeeper.set.acl`: only the creator may write; everyone may read what is not secret."""
        from kazoo import security

        if not self._set_acl or path == _OPEN:
            return list(security.OPEN_ACL_UNSAFE)
        return [*security.CREATOR_ALL_ACL, *(() if path.startswith(_SECRET) else security.READ_ACL_UNSAFE)]

    def is_open(self, path: str) -> bool:
        """Whether any client may change the node, or what is below it. NoNode."""
        check_path(path)
        from kazoo.security import Permissions

        acls, _ = self._await(self._connected(path).get_acls_async(path), path)
        return any(acl.id.scheme == "world" and acl.perms & ~Permissions.READ for acl in acls)

    def close_off(self, path: str) -> None:
        """Give `path` and all below it the ACL that it would have if it were created now. NoNode."""
        self._await(self._connected(path).set_acls_async(path, self._acl(path)), path)
        for name in self.children(path):
            self.close_off(f"{path}/{name}")

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
        return _Watch(path, self._put_event) if wanted else None

    def poll(self) -> list[Event]:
        try:
            os.eventfd_read(self._bell)  # first: a later event signals again
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
        """The client, if it is connected. NotDone."""
        if not self._client.connected or self._opening:
            raise NotDone(f"{path}: not connected to ZooKeeper")
        return self._client

    def _await(self, result: IAsyncResult, path: str) -> Any:
        try:
            return result.get(timeout=self._timeout)
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


def _user(auth: str | None, begin: Callable[[], DigestMd5Client] | None) -> list[AuthScheme | Login]:
    """What authenticates each connection."""
    if not auth and begin is None:
        return []
    from odradek.cluster.tree.zookeeper_security import AuthScheme, Login

    return [*([AuthScheme(auth)] if auth else []), *([Login(begin)] if begin is not None else [])]


def _began(client: KazooClient, timeout: float, acl: list[Any] | None, hopeless: Callable[[], bool] | None) -> bool:
    """Connect and ensure the chroot, created with `acl`; False when no server answers both within `timeout` seconds.

    Without an `acl` a missing chroot stays missing.
    `hopeless` ends the wait for a connection.
    A connection lost in between counts as no answer: kazoo opens the next.
    """
    from kazoo.exceptions import ConnectionLoss, SessionExpiredError

    until = time.monotonic() + timeout
    connected = client.start_async()
    while _await(connected, until, hopeless):
        try:
            if acl is None:
                client.exists("/")
            else:
                client.ensure_path("/", acl)
            return True
        except (ConnectionLoss, SessionExpiredError):
            if time.monotonic() >= until:
                break
    return False


def _await(connected: Any, until: float, hopeless: Callable[[], bool] | None) -> bool:
    """Wait for the event; True when it happened."""
    while hopeless is None or not hopeless():
        left = max(0.0, until - time.monotonic())
        if connected.wait(left if hopeless is None else min(left, _LOOK_S)):
            return True
        if not left:
            break
    return False


def _raise_first(operations: Sequence[Operation], results: Sequence[Any]) -> None:
    """Raise the error of the one operation that failed; the others only report that they were rolled back."""
    from kazoo import exceptions

    passed_over = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)
    for operation, result in zip(operations, results, strict=True):
        if isinstance(result, Exception) and not isinstance(result, passed_over):
            raise _translated(result, operation.path)
    if any(isinstance(result, Exception) for result in results):
        raise TreeUnavailable("/: ZooKeeper rolled back a transaction without an error code")


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
    """The TreeError for an exception of kazoo; other errors are raised again."""
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
    """TooLarge where ZooKeeper would close the connection and so drop all watches."""
    data = sum(len(operation.data) for operation in operations if isinstance(operation, (Create, Set)))
    size = data + sum(len(operation.path) + _PER_OPERATION for operation in operations)
    if size > _LARGEST:
        raise TooLarge(
            f"{operations[0].path}: a request of {size} bytes exceeds ZooKeeper's limit of {_LARGEST} (jute.maxbuffer)"
        )
