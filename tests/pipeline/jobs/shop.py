"""A file of four stages over its own topics, and the check of all that they wrote."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from ...clients.admin import create_named, unique
from ...clients.transactions import await_stable
from ..written import Written, written
from . import orders


class Shop:
    """A file of stages over its own topics."""

    def __init__(self, broker: Any, folder: Path) -> None:
        self.broker, self.stem, self.file = broker, unique("shop"), folder / "stages.toml"
        self.file.write_text(orders.TOML.format(folder=folder, stem=self.stem, bootstrap=broker.bootstrap))
        with broker.wire() as wire:
            for name in ("raw", "people"):
                create_named(wire, f"{self.stem}-{name}", 2)
        people = [f"{name}".encode() for name in orders.COUNTRIES.values()]
        self.send("people", people, [name.encode() for name in orders.COUNTRIES])

    def send(self, name: str, values: list[bytes], keys: list[bytes] | None = None) -> None:
        orders.send(self.broker.bootstrap, f"{self.stem}-{name}", values, keys)

    def records(self, name: str) -> list[Written]:
        return written(self.broker, f"{self.stem}-{name}", "read_committed")

    def values(self, name: str) -> list[bytes | None]:
        return [record.value for record in self.records(name)]

    def check(self, *runs: list[bytes]) -> None:
        """Each expected record is written once, and no other."""
        for name in ("dead", "cleaned", "unique", "priced", "hourly"):
            await_stable(self.broker, f"{self.stem}-{name}")
        bad = [value for run in runs for value in run if orders.good(value) is None]
        assert Counter(self.values("dead")) == Counter(bad)
        assert all(dict(record.headers)["odradek.stage"] == b"cleaned" for record in self.records("dead"))
        cleaned = [[order for value in run if (order := orders.good(value))] for run in runs]
        once = orders.unique(cleaned)
        assert orders.orders(self.values("cleaned")) == orders.expected(order for run in cleaned for order in run)
        for name in ("unique", "priced"):
            assert orders.orders(self.values(name)) == orders.expected(order for run in once for order in run)
        assert orders.windows(self.values("hourly")) == Counter(orders.hourly(once).items())
