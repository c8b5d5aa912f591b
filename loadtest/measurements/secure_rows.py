"""Loads over TLS: the same clients, certificate and cipher suite on Odradek and Apache Kafka.

python -m odradek.loadtest.bench --rows tls
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from odradek.loadtest.harness.brokers import Broker
from odradek.loadtest.harness.load_clients import Call, Cost
from odradek.loadtest.measurements.rows import ROWS as PLAIN_ROWS
from odradek.loadtest.measurements.rows import Row, Target
from odradek.loadtest.measurements.rows import once as once_plain

HANDSHAKES = "handshakes"
_PLAIN = {row.key: row for row in PLAIN_ROWS}


def _over_tls(key: str, messages: int, target: Target, title: str) -> Row:
    row = _PLAIN[key]
    fill = row.fill and (f"{row.fill[0]}-tls", row.fill[1].scaled(messages / row.fill[1].sent))
    call = replace(row.kafka, secure=True, numbers={**row.kafka.numbers, "messages": messages})
    return Row(f"{key}-tls", title, call, target, row.more, fill=fill, cold=row.cold)


ROWS = (
    _over_tls("batch1", 50_000, Target(rate=4), "200 B, batch 1, acks=1, many in flight"),
    _over_tls("full", 800_000, Target(cpu=0.7), "1 KB, full batches"),
    _over_tls("consume", 1_000_000, Target(cpu=0.6), "consume 1 GB from the start, one consumer, just started broker"),
    Row(
        HANDSHAKES,
        "handshakes of TLS 1.3, without a session to resume, one after the other",
        Call(HANDSHAKES, "", {"messages": 2000, "size": 0}),
        Target(cpu=1 / 1.5),
    ),
)


def certificates(folder: Path) -> Path:
    """The folder below `folder` with a CA and a broker's certificate; made by the first load that needs them."""
    directory = folder / "tls"
    if directory.exists():
        return directory
    command = [sys.executable, "-m", "odradek.broker", "tls", "init", "--hostname", "127.0.0.1", "--directory"]
    subprocess.run([*command, str(directory)], check=True, capture_output=True)
    return directory


def once(row: Row, broker: Broker, scale: float) -> Cost:
    """Run `row`, or `scale` of it, on `broker`."""
    if row.key != HANDSHAKES:
        return once_plain(row, broker, scale)
    return handshakes(broker, row.kafka.scaled(scale).numbers["messages"])


def handshakes(broker: Broker, count: int) -> Cost:
    """Connect that often, and close each connection when its handshake is done."""
    assert broker.tls is not None
    context = ssl.create_default_context(cafile=broker.tls / "ca.pem")
    host, port = broker.secure_bootstrap.split(":")
    before, began, used = broker.cpu(), time.monotonic(), time.process_time()
    for _ in range(count):
        with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain, server_hostname=host):
            pass
    seconds, client = time.monotonic() - began, time.process_time() - used
    return Cost(count, 1, seconds, broker.cpu() - before, client)
