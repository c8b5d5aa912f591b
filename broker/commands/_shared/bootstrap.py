"""Connects a client of kafka-python to its first broker, in place of kafka-python's own bootstrap.

That one tries a random address until its time is over (30 s), waits all this time for one that accepts a connection and
stays silent, and says in the end only that it could not. This one tries all addresses, and ends as soon as no other
attempt can help (`_shared.bootstrap_attempts`), with one line that says what to change:

- an address that refuses, closes, or has no host: after PATIENCE_S, since a broker that starts or stops does it too;
- one that speaks another protocol, or refuses certificate or credentials (`_shared.refused_connections`): at once;
- one that does not answer: after request.timeout.ms, which the line names;
- one that answers, but knows no brokers yet: after the client's own time.
"""

from __future__ import annotations

import errno
import math
import os
import re
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

from kafka import errors as kafka_errors
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager

from odradek.broker.commands._shared import refused_connections
from odradek.broker.commands._shared.bootstrap_attempts import (
    FOR_GOOD,
    FOR_NOW,
    UNTIL_DEADLINE,
    BootstrapAttempts,
    Failure,
)  # fmt: skip
from odradek.broker.commands._shared.refused_connections import CERTIFICATE, PROTOCOL, Refused, cause_of, why_refused
from odradek.broker.listeners import bracket

_SERVERS = "--bootstrap-server"
_TIMEOUTS = (kafka_errors.KafkaTimeoutError, kafka_errors.RequestTimedOutError)
_ERRNO = re.compile(r"(\d+) E[A-Z]+$")  # as kafka-python says why it cannot connect
_NO_HOST = "DNS Resolution failure"  # as it says this


class _NoMetadata(Exception):
    """A broker answers, but the client cannot begin with it; the text says why."""


@cache
def install() -> None:
    """Have the clients of this process connect in this way."""
    refused_connections.install()
    KafkaConnectionManager._do_bootstrap = bootstrap


async def bootstrap(manager: Any, deadline: float | None) -> bool:
    """KafkaConnectionManager._do_bootstrap. Raises Refused, whose text says why."""
    return await _Bootstrap(manager, math.inf if deadline is None else deadline).run()


class _Bootstrap:
    def __init__(self, manager: Any, deadline: float) -> None:
        self._manager = manager
        self._deadline = deadline
        self._nodes = {f"{bracket(node.host)}:{node.port}": node for node in manager.cluster.bootstrap_brokers()}
        self._attempts = BootstrapAttempts(list(self._nodes), time.monotonic(), deadline)
        self._connected = False

    async def run(self) -> bool:
        manager, attempts = self._manager, self._attempts
        while not (self._connected or manager.closed or attempts.is_over):
            for address in attempts.take_due(time.monotonic()):
                manager.call_soon(self._try, address)
            await manager._bootstrap_wakeup(attempts.wait_s(time.monotonic()))
        if not self._connected:
            raise Refused(attempts.text or "the client is closed")
        manager.cluster.start_refresh_loop()
        return True

    async def _try(self, address: str) -> None:
        """One attempt; a failure goes to the machine, and `run` looks at it again."""
        limit_s = min(self._manager.config["request_timeout_ms"] / 1000, self._deadline - time.monotonic())
        try:
            await self._connect(self._nodes[address], time.monotonic() + limit_s)
            self._connected = True
        except Exception as error:
            failure = _failure(error, self._manager.config, limit_s)
            if failure.patience_s and self._deadline == math.inf:  # a client that waits in the background
                failure = failure._replace(patience_s=UNTIL_DEADLINE)
            self._attempts.failed(address, failure, time.monotonic())
        self._manager._bootstrap_wakeup.notify()

    async def _connect(self, node: Any, until: float) -> None:
        """Read the metadata from one address, over a connection of its own."""
        manager = self._manager
        transport = await manager._build_transport(node, timeout_at=until)
        connection = KafkaConnection(
            manager._net, node_id=node.node_id, broker_version_data=manager.broker_version_data, **manager.config
        )
        connection.refusals = {}
        connection.connection_made(transport)
        try:
            await connection.initialize(timeout_at=until)
            await connection
            await self._read_metadata(connection)
        finally:
            manager._conns.pop(node.node_id, None)
            connection.close()

    async def _read_metadata(self, connection: Any) -> None:
        manager = self._manager
        if connection.broker_version_data is not None:
            manager.broker_version_data = connection.broker_version_data
        manager._conns[connection.node_id] = connection
        try:
            await manager.cluster.refresh_metadata(connection.node_id)
        except kafka_errors.IncompatibleBrokerVersion as error:
            raise Refused(f"the listener does not serve Metadata, as one of a controller ({_SERVERS})") from error
        except (kafka_errors.KafkaConnectionError, *_TIMEOUTS):  # as a listener of SASL closes it
            raise
        except kafka_errors.KafkaError as error:
            raise _NoMetadata(f"the broker refuses a Metadata request: {error}") from error
        if not manager.cluster.brokers():
            raise _NoMetadata("the broker knows no brokers of its cluster yet")


# -- why


def _failure(error: Exception, config: Mapping[str, Any], limit_s: float) -> Failure:
    """What an error of an attempt means."""
    if isinstance(error, _NoMetadata):
        return Failure(str(error), UNTIL_DEADLINE)
    if why := str(error) if isinstance(error, Refused) else why_refused(error, config, True):
        return Failure(why, FOR_GOOD)
    if isinstance(cause_of(error), _TIMEOUTS):
        return Failure(_silent(config, limit_s), FOR_GOOD)
    if isinstance(error, kafka_errors.KafkaProtocolError):
        return Failure(f"the peer does not speak Kafka's protocol ({_SERVERS}): {error}", FOR_GOOD)
    return Failure(_unconnected(error, config["security_protocol"]), FOR_NOW)


def _unconnected(error: Exception, protocol: str) -> str:
    if not isinstance(error, kafka_errors.KafkaConnectionError):
        return f"{error} ({_SERVERS})"
    text = str(error.args[0]) if error.args else ""
    found = _ERRNO.match(text)
    if found and int(found[1]) != errno.ECONNRESET:
        return f"{os.strerror(int(found[1]))}: start the broker, or correct {_SERVERS}"
    if text == _NO_HOST:
        return f"the host name has no address: correct {_SERVERS}"
    return _closed(protocol)


def _silent(config: Mapping[str, Any], limit_s: float) -> str:
    """The setting is named where it is the limit, which it is by default."""
    of_request = config["request_timeout_ms"] / 1000 < limit_s + 1
    within = f"{round(limit_s, 1):g} s{' (request.timeout.ms)' if of_request else ''}"
    return f"no answer within {within}: correct {_SERVERS} or {PROTOCOL}={config['security_protocol']}"


def _closed(protocol: str) -> str:
    others = [f", or require a certificate ({CERTIFICATE})"] if protocol.endswith("SSL") else []
    if protocol.startswith("SASL"):  # kafka-python may see the end before the answer to its credentials
        others.append(", or refuse the user (sasl.jaas.config)")
    return f"the peer closes connections: its listener may not have {PROTOCOL}={protocol}{''.join(others)}"
