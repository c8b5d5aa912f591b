"""A broker's session with ZooKeeper, and the ids that it settles there before it starts: cluster id and broker id.

Layout    : `zookeeper-session` in the run directory, 0600: the id and the password of the session, a line each.
Owner     : the controller process writes it whenever the session changes. When the broker stops (`draining` in shared
            memory) it ends the session and removes the file; if it is killed before that, the last steps of the stop
            do so (broker.supervisor.shutdown).
Crash rule: a controller process that ends while its broker serves on, by a signal (SIGTERM too) or by an error, leaves
            the session. Its successor continues it, so that the cluster does not notice. A broker of which all
            processes died ends it at its next start, before it registers: its former registration is removed at once,
            not when the session expires.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from odradek.broker import listeners
from odradek.broker.config import BrokerConfig
from odradek.broker.errors import BootError, OdradekError
from odradek.broker.interbroker import zookeeper_credentials
from odradek.broker.process.process import wait_for
from odradek.cluster.state import ClusterState
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import Tree, TreeError, TreeUnavailable
from odradek.cluster.tree.znodes import BrokerNode
from odradek.cluster.tree.zookeeper import ConnectError, NoAnswer, ZooKeeperTree
from odradek.ipc.notices import Notices
from odradek.ipc.rundir import SESSION_FILE

log = logging.getLogger(__name__)

_SEQUENCE = "/brokers/seqid"
_GRACE_S = 3.0  # a session expires up to one server tick after its timeout
_LAST_MS = 5000  # to connect at the end of a stop, which waits for it

Credentials = tuple[int, bytes]


def open_tree(config: BrokerConfig, former: Credentials | None = None, ends: bool = False) -> ZooKeeperTree:
    """The metadata tree at zookeeper.connect. Raises BootError, and OdradekError when the next try may succeed.

    After a power failure brokers may start before ZooKeeper does. A process that takes the session over has a broker
    that serves: what ZooKeeper refuses now it may take later. `ends`: see ZooKeeperTree.
    """
    session_ms, connect_ms = config["zookeeper.session.timeout.ms"], _connect_ms(config)
    auth = config["odradek.zookeeper.auth"]
    try:
        tls = zookeeper_credentials.tls_context(config, Notices(config.run_dir).is_first)
        login = zookeeper_credentials.login(config)
        return ZooKeeperTree(
            config["zookeeper.connect"], session_ms, connect_ms, auth, config["zookeeper.set.acl"], former, ends,
            tls, login,
        )  # fmt: skip
    except ValueError as error:  # a setting
        raise BootError(str(error)) from None
    except NoAnswer as error:
        raise OdradekError(str(error)) from None
    except ConnectError as error:
        raise (BootError if former is None or ends else OdradekError)(str(error)) from None


def _connect_ms(config: BrokerConfig) -> int:
    return int(config["zookeeper.connection.timeout.ms"] or config["zookeeper.session.timeout.ms"])


def failed(config: BrokerConfig, error: Exception) -> OdradekError:
    """The error to raise when the tree raised `error` and this process cannot start without an answer."""
    kind = OdradekError if isinstance(error, TreeUnavailable) else BootError
    return kind(f"ZooKeeper at {config['zookeeper.connect']}: {error!r}")


def save_session(run_dir: Path, credentials: Credentials) -> None:
    """Save the session for the successor of this process; if the write fails, no session is saved."""
    try:
        _save(run_dir, f"{credentials[0]}\n{credentials[1].hex()}\n")
    except OSError as error:
        log.error("cannot write %s: a restarted controller process registers again: %s", SESSION_FILE, error)
        with suppress(OSError):
            forget_session(run_dir)


def _save(run_dir: Path, text: str) -> None:
    temporary = run_dir / f"{SESSION_FILE}.new"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text)
    os.replace(temporary, run_dir / SESSION_FILE)


def former_session(run_dir: Path) -> Credentials | None:
    """The session that was saved last, None when there is none."""
    try:
        number, password = (run_dir / SESSION_FILE).read_text().split()
        return int(number), bytes.fromhex(password)
    except (OSError, ValueError):
        return None


def forget_session(run_dir: Path) -> None:
    """Remove the file: the session has ended."""
    (run_dir / SESSION_FILE).unlink(missing_ok=True)


def end_session(config: BrokerConfig) -> None:
    """At the end of a stop: end the session if no process has ended it; without ZooKeeper it expires."""
    former = former_session(config.run_dir)
    if former is None:
        return
    try:
        quick = config.with_value("zookeeper.connection.timeout.ms", min(_LAST_MS, _connect_ms(config)))
        open_tree(quick, former, ends=True).close()
    except OdradekError as error:
        log.warning("cannot unregister: the registration ends with the ZooKeeper session: %s", error)
    else:
        forget_session(config.run_dir)


def settle(config: BrokerConfig, former_id: int | None, cluster_id: str | None) -> tuple[int, str | None, bytes | None]:
    """(broker id, cluster id, data of its dynamic configs) of a broker that is about to start. Raises as `open_tree`.

    `former_id` and `cluster_id` are from its log directories; the result has the cluster's own id whatever they say,
    which a new cluster takes from them.
    """
    former = former_session(config.run_dir)
    if former is not None:
        open_tree(config, former, ends=True).close()
        forget_session(config.run_dir)
    tree = open_tree(config)
    try:
        state = ClusterState(tree, max(0, config["broker.id"]))
        known = state.prepare(cluster_id)
        _check_acls(tree, config)
        broker = _broker_id(tree, config, former_id)
        _refuse_second(tree, broker)
        configs = tree.find(znodes.broker_config_path(broker))
    except TreeError as error:
        raise failed(config, error) from None
    finally:
        tree.close()
    return broker, known, configs


def _check_acls(tree: ZooKeeperTree, config: BrokerConfig) -> None:
    """With zookeeper.set.acl, refuse a tree that any client may change. Kafka's tool leaves out our own nodes."""
    if not config["zookeeper.set.acl"]:
        return
    if tree.is_open(znodes.OWN):
        tree.close_off(znodes.OWN)
    found = [path for path in znodes.PERSISTENT if path != znodes.CONSUMERS and tree.is_open(path)]
    if found:
        raise BootError(
            f"zookeeper.set.acl: any client may change {found[0]} and {len(found) - 1} other nodes: run "
            "`zookeeper-security-migration.sh --zookeeper.acl=secure` of Apache Kafka first"
        )


def settling_s(config: BrokerConfig) -> float:
    """How long `settle` may take: two connections, a wait for another registration, and one call without an answer."""
    session_ms: int = config["zookeeper.session.timeout.ms"]
    return (2 * _connect_ms(config) + 2 * session_ms) / 1000 + _GRACE_S


def _broker_id(tree: Tree, config: BrokerConfig, former: int | None) -> int:
    """broker.id, or the id in the directories, or a new one of the cluster (Kafka's /brokers/seqid)."""
    if config["broker.id"] >= 0:
        return int(config["broker.id"])
    if former is not None:
        return former
    return int(config["reserved.broker.max.id"]) + tree.set(_SEQUENCE, b"").version


def _refuse_second(tree: ZooKeeperTree, broker: int) -> None:
    """Wait until a former registration has expired; one that stays is another broker's.

    ZooKeeper gives each session at least its `minSessionTimeout`, whatever zookeeper.session.timeout.ms says.
    """
    path = f"{znodes.BROKER_IDS}/{broker}"
    timeout = tree.session_ms / 1000 + _GRACE_S
    if tree.exists(path) is None:
        return
    log.warning("broker.id %d is still registered: waiting for the old session to expire", broker)
    if not wait_for(lambda: tree.exists(path) is None, timeout, 0.1):
        data = tree.find(path) or b""
        raise BootError(
            f"broker.id={broker} is another broker's: ZooKeeper says {data.decode(errors='replace')}; stop that "
            "broker, or give this one its own broker.id and log.dirs"
        )


def address_of(node: BrokerNode, config: Any) -> tuple[str, int]:
    """The address at which this broker reaches another one: its inter-broker listener, or its first one."""
    return node.endpoints.get(listeners.between_brokers(config)) or next(iter(node.endpoints.values()))
