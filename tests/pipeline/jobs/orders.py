"""Orders of a shop, with invalid, duplicate and late ones; and the expected results of four stages.

The stages: cleaned (dead letters), unique (no late and duplicate ones), priced (with the customer's country), hourly.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Producer

Order = dict[str, Any]
HOUR = 3600
UNIQUE_LATE, HOURLY_LATE = 2 * HOUR, 60  # seconds
START = 1_700_000_000 // HOUR * HOUR
COUNTRIES = {"anna": "AT", "bert": "BE"}  # cora is unknown

TOML = """
checkpoint = "{folder}/checkpoint"
dead_letters = "{stem}-dead"
partitions = 2
kafka = {{ bootstrap.servers = "{bootstrap}", fetch.max.bytes = 10000000, client.id = "shop" }}

[[stage]]  # comes before its source: the program finds the order
name = "hourly"
from = "{stem}-priced"
to = "{stem}-hourly"
event_time = "at"
watermark = "1 minute"
[stage.aggregate]
window = "1 hour"
by = {{ country = "person.value" }}
values = {{ orders = "count(*)", total = "sum(amount)" }}

[[stage]]
name = "cleaned"
from = "{stem}-raw"
to = "{stem}-cleaned"
key = "customer"
parse = {{ format = "json", schema = "id BIGINT, customer STRING, amount BIGINT, at BIGINT" }}
validate = {{ "it has an amount" = "amount > 0" }}
normalise = {{ customer = "lower(trim(customer))", at = "timestamp_seconds(at)" }}

[[stage]]
name = "unique"
from = "{stem}-cleaned"
to = "{stem}-unique"
event_time = "at"
watermark = "2 hours"
deduplicate = {{ by = ["id"] }}

[[stage]]
name = "priced"
from = "{stem}-unique"
to = "{stem}-priced"
enrich = {{ with = "{stem}-people", on = "customer", as = "person", parse = {{ format = "string" }} }}
"""


def made(seed: int, count: int, first: int = 0, hours: float = 0) -> list[bytes]:
    """Orders with ids from `first` on, a minute apart and slightly shuffled, from `hours` after START on."""
    chance = random.Random(seed)
    found: list[bytes] = []
    for at in range(count):
        found += _sent(first + at, START + int(hours * HOUR) + 60 * at, chance)
    return [found[at] for at in sorted(range(len(found)), key=lambda at: at + chance.randrange(10))]


def _sent(number: int, at: int, chance: random.Random) -> list[bytes]:
    order = {"id": number, "customer": chance.choice(["Anna ", "bert", "CORA"]), "amount": 1 + number % 7, "at": at}
    kind = chance.random()
    if kind < 0.1:
        return [chance.choice([b"", b"{", b'{"id": "x"}', b"\xff", b"[]"])]
    if kind < 0.2:
        return [_bytes({**order, "amount": chance.choice([0, -1, None])})]
    return [_bytes(order)] * (2 if kind < 0.4 else 1)


def _bytes(order: Order) -> bytes:
    return json.dumps(order).encode()


def send(bootstrap: str, topic: str, values: Iterable[bytes], keys: Iterable[bytes | None] | None = None) -> None:
    """Send to any partition."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for value, key in zip(values, keys or _none(), strict=False):
        producer.produce(topic, value, key)
    assert not producer.flush(60)


def _none() -> Iterable[None]:
    while True:
        yield None


# -- expected results, each a list with one entry for each run


def good(value: bytes) -> Order | None:
    """The order that `cleaned` makes of a value; None for a dead letter."""
    try:
        order: Any = json.loads(value)
    except ValueError:
        return None
    if not isinstance(order, dict) or type(order.get("id")) is not int or not (order.get("amount") or 0) > 0:
        return None
    return {**order, "customer": order["customer"].strip().lower()}


def unique(runs: Iterable[list[Order]]) -> list[list[Order]]:
    """The first order of each id, without those that are late for the runs before."""
    seen: set[int] = set()
    late, found = 0, []
    for run in runs:
        fresh = {order["id"]: order for order in run if order["id"] not in seen and order["at"] > late}
        seen |= fresh.keys()
        late = max([late, *(order["at"] - UNIQUE_LATE for order in run)])
        found.append(list(fresh.values()))
    return found


def hourly(runs: Iterable[list[Order]]) -> dict[tuple[int, str | None], tuple[int, int]]:
    """(orders, total) by hour and country, for the hours that have ended by the last run."""
    sums: defaultdict[tuple[int, str | None], list[int]] = defaultdict(lambda: [0, 0])
    ended = 0
    for run in runs:
        for order in run:
            hour = order["at"] // HOUR * HOUR
            if hour + HOUR > ended:
                sums[hour, COUNTRIES.get(order["customer"])][0] += 1
                sums[hour, COUNTRIES.get(order["customer"])][1] += order["amount"]
        ended = max([ended, *(order["at"] - HOURLY_LATE for order in run)])
    return {(hour, who): (n, total) for (hour, who), (n, total) in sums.items() if hour + HOUR <= ended}


# -- results


def orders(values: Iterable[bytes | None]) -> Counter[tuple[Any, ...]]:
    """The results of `cleaned`, `unique` and `priced`."""
    found = [json.loads(value or b"") for value in values]
    return Counter((one["id"], one["customer"], one["amount"], seconds(one["at"])) for one in found)


def expected(given: Iterable[Order]) -> Counter[tuple[Any, ...]]:
    """The same for computed orders."""
    return Counter((one["id"], one["customer"], one["amount"], one["at"]) for one in given)


def windows(values: Iterable[bytes | None]) -> Counter[tuple[Any, ...]]:
    """The results of `hourly`: ((start, country), (orders, total)), with their counts."""
    found = [json.loads(value or b"") for value in values]
    return Counter(((seconds(one["window_start"]), one["country"]), (one["orders"], one["total"])) for one in found)


def seconds(text: str) -> int:
    """Seconds since 1970."""
    return int(datetime.fromisoformat(text).astimezone(UTC).timestamp())
