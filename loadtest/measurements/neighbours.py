"""The latency of one client under other clients' heavy load, of Odradek alone.

    python -m odradek.loadtest.bench --rows neighbours

One client sends 2,000 records a second, each alone, to a plain listener. The other load is one of: none; 500 new TLS
connections a second; a producer that sends full batches as fast as its quota lets it; 5,000 connections that never
authenticate. All of them run on the broker's two cores, so their own CPU is part of what the first client feels.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from odradek.loadtest.harness.brokers import Odradek
from odradek.loadtest.harness.load_clients import Call, Client, Cost, run
from odradek.loadtest.harness.store import Entry
from odradek.loadtest.harness.tools import say
from odradek.loadtest.measurements.guard_rows import add_quota
from odradek.loadtest.measurements.secure_rows import certificates

KEY = "neighbours"
ALONE = "no other load"
_LATENCY = Call("client", "latency", {"rate": 2000, "seconds": 5, "size": 200}, ("acks=1", "linger.ms=0"))
_FLOOD = Call(
    "client", "produce", {"messages": 1_000_000_000, "size": 1000}, ("client.id=flood", "acks=1", "linger.ms=5")
)
_QUOTA = 5_000_000  # bytes a second
_CONNECTIONS, _A_SECOND = 5000, 500

Neighbour = Callable[[Odradek], AbstractContextManager[None]]


@contextmanager
def _crowd(broker: Odradek, mode: str, number: int) -> Iterator[None]:
    """A process that opens connections (odradek.loadtest.harness.crowd)."""
    words = ["odradek.loadtest.harness.crowd", mode, broker.secure_bootstrap, f"{broker.tls}/ca.pem", str(number)]
    crowd = subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.PIPE)
    try:
        assert crowd.stdout is not None
        crowd.stdout.readline()  # it is at work
        yield
    finally:
        crowd.kill()
        crowd.communicate()


@contextmanager
def _flood(broker: Odradek) -> Iterator[None]:
    broker.create("flood")
    try:
        with Client(_FLOOD, broker, "flood") as flood:
            flood.go()
            yield
    finally:
        broker.delete("flood")


NEIGHBOURS: dict[str, Neighbour] = {
    ALONE: lambda broker: nullcontext(),
    "500 TLS connections a second": lambda broker: _crowd(broker, "handshakes", _A_SECOND),
    "a producer at its quota": _flood,
    "5,000 connections that do not authenticate": lambda broker: _crowd(broker, "silent", _CONNECTIONS),
}


def measure(folder: Path, rounds: int, scale: float) -> Entry:
    """One round after the other with each neighbour in turn, after one that does not count."""
    entry = Entry({name: [] for name in NEIGHBOURS}, rounds, scale)
    tls = certificates(folder)
    with Odradek(folder / KEY, {"odradek.authentication.timeout.ms": 60_000}, tls) as broker:
        broker.start()
        add_quota(broker, _QUOTA, "--client", "flood")
        broker.create("neighbours")
        for turn in range(rounds + 1):
            for name, neighbour in NEIGHBOURS.items():
                cost = _once(broker, neighbour, scale)
                say(f"{KEY} {turn or 'warm-up'}: beside {name} p50 {cost.p50:,.0f} µs, p99 {cost.p99:,.0f} µs")
                if turn:
                    entry.data[name].append(cost.as_dict())
    shutil.rmtree(folder / KEY, ignore_errors=True)
    return entry


def _once(broker: Odradek, neighbour: Neighbour, scale: float) -> Cost:
    with neighbour(broker):
        return run(_LATENCY.scaled(scale), broker, "neighbours")
