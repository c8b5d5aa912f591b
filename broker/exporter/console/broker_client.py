"""The console as an ordinary client of the broker: how it connects, as which user, and what it says if it may not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import click
from kafka.errors import KafkaError

from odradek.broker.commands._shared.client import Cluster
from odradek.broker.commands._shared.options import load_properties
from odradek.broker.config import BrokerConfig
from odradek.broker.errors import OdradekError
from odradek.broker.exporter.access.refused import Refused
from odradek.broker.listeners import bracket
from odradek.cluster.metadata.snapshot import Snapshot

COMMAND_CONFIG = "odradek.console.command.config"
SECONDS = 5.0  # for a connection, and for each request

logging.getLogger("kafka").setLevel(logging.CRITICAL)  # the page says what failed; the library logs it several times


@contextmanager
def connected(config: BrokerConfig, snapshot: Snapshot, missing: str, what: str) -> Iterator[Cluster]:
    """A connection. Raises Refused, in one line: `missing` is what is not shown without a user, `what` failed."""
    try:
        servers, properties = connection(config, snapshot, missing)
        milliseconds = int(SECONDS * 1000)
        with Cluster(servers, properties, milliseconds, milliseconds) as cluster:
            yield cluster
    except click.UsageError as error:
        raise Refused(502, f"{COMMAND_CONFIG}: {error.format_message()}") from None
    except (OdradekError, KafkaError, OSError) as error:
        raise Refused(502, f"cannot {what}: {error}") from None


def connection(config: BrokerConfig, snapshot: Snapshot, missing: str) -> tuple[str, dict[str, str]]:
    """The addresses to connect to, and a client's properties. Raises Refused where the console has no user."""
    path = config[COMMAND_CONFIG]
    if not path and config["authorizer.class.name"]:
        raise Refused(
            403,
            f"{missing}: authorizer.class.name is set and the console has no user; set {COMMAND_CONFIG} to the "
            "properties file of a client that has the right, and restart the broker",
        )
    properties = load_properties(path or None)
    servers = properties.pop("bootstrap.servers", "")
    return servers or _listener(config, snapshot, properties.get("security.protocol", "PLAINTEXT"), missing), properties


def _listener(config: BrokerConfig, snapshot: Snapshot, protocol: str, missing: str) -> str:
    """The advertised address of this broker's listener with that protocol."""
    protocols = snapshot.protocols or config.protocols
    own = snapshot.brokers.get(config["broker.id"])
    for name, (host, port) in (own.endpoints if own is not None else {}).items():
        if protocols.get(name) == protocol.strip().upper():
            return f"{bracket(host)}:{port}"
    raise Refused(
        403,
        f"{missing}: this broker has no {protocol} listener; set {COMMAND_CONFIG} to a client's properties file with "
        "its security.protocol, and restart the broker",
    )
