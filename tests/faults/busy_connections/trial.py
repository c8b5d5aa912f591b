"""Busy connections in some processes, and what they see."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from typing import Any

from ...clients.admin import create_topic
from ...clients.raw.calls import fetch
from ...harness.process import die_with_parent, wait_until

PROCESSES, PARTITIONS = 2, 20


class BusyConnections:
    """`count` connections to a broker, in PROCESSES processes; each sends every `period` seconds."""

    def __init__(self, broker: Any, count: int, period: float) -> None:
        self.broker = broker
        self.topic = create_topic(broker, "busy", PARTITIONS)
        words = [broker.bootstrap, self.topic, str(PARTITIONS), str(count // PROCESSES), str(period)]
        command = [sys.executable, "-m", "tests.faults.busy_connections.client", *words]
        self._clients = [
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent
            )
            for _ in range(PROCESSES)
        ]

    def await_all(self, count: int) -> dict[str, Any]:
        """Wait until so many requests have been answered; returns what was seen meanwhile."""
        seen = self.measured()

        def enough() -> bool:
            nonlocal seen
            seen = _together(seen, self.measured())
            return int(seen["requests"]) >= count

        wait_until(enough, 120, f"{count} requests are answered")
        return seen

    def measured(self, word: str = "measure") -> dict[str, Any]:
        """What the clients have seen since the last call, all together."""
        for one in self._clients:
            assert one.stdin is not None
            one.stdin.write(word + "\n")
            one.stdin.flush()
        found = [json.loads(one.stdout.readline()) for one in self._clients if one.stdout is not None]
        return functools.reduce(_together, found)

    def finish(self) -> None:
        """Stop, and compare what was acknowledged with what is there: each request was sent once."""
        last = self.measured("stop")
        assert last["faults"] == []
        with self.broker.wire(60) as wire:
            ends = [fetch(wire, self.topic, 0, partition=n, wait_ms=0).high_watermark for n in range(PARTITIONS)]
        assert sum(ends) == last["acked"]

    def close(self) -> None:
        """End the processes."""
        for one in self._clients:
            one.kill()
            one.wait()


def _together(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Of two measurements: counts are added, of times the longer one counts."""
    added = {name: one[name] + other[name] for name in ("acked", "requests", "slow", "faults")}
    return {**{name: max(one[name], other[name]) for name in one}, **added}
