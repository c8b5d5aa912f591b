"""A topic into Arrow record batches: `odradek.arrow` from files and over the wire, and librdkafka's consumer.

Each way is one program on the broker's machine, which counts the records that it has as columns and lets go of the
batches. Time runs from the first request to the last batch, without imports. librdkafka hands out records as objects of
Python, so that program makes its batches from lists.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import psutil

from odradek.loadtest.harness.brokers import Broker, Odradek
from odradek.loadtest.harness.load_clients import Call, LoadError, run
from odradek.loadtest.harness.store import Entry
from odradek.loadtest.harness.tools import say, touch_memory
from odradek.loadtest.measurements.curves import Bench

PARTITIONS = 4
TOPIC = "tables"
SECONDS = 600


class Load(NamedTuple):
    """`records` records of `size` bytes."""

    records: int
    size: int


LOADS = {"arrow-1kb": Load(2_000_000, 1000)}
FILES, WIRE, CONFLUENT = "odradek.arrow, files", "odradek.arrow, wire", "confluent-kafka"
WAYS = (FILES, WIRE, CONFLUENT)


def measure(kinds: Sequence[type[Broker]], key: str, bench: Bench) -> Entry:
    """All ways in turn on Odradek, after one warm-up round."""
    load = LOADS[key]
    records = max(10_000, round(load.records * bench.scale))
    entry = Entry({}, bench.rounds, bench.scale)
    with _filled(bench, load, records) as broker:
        for turn in range(bench.rounds + 1):
            for way in WAYS:
                told = _round(way, broker, records + 1, load.size)
                mb, cpu = told["rate"] * load.size / 1e6, told["client_cpu"]
                say(f"{key} {turn or 'warm-up'}: {way} {told['rate']:,.0f} records/s, {mb:,.0f} MB/s, {cpu:.2f} CPU s")
                if turn:
                    entry.data.setdefault(way, []).append(told)
    return entry


def _round(way: str, broker: Broker, records: int, size: int) -> dict[str, float]:
    before = broker.cpu()
    words = [sys.executable, "-m", "odradek.loadtest.measurements.tables", way, broker.bootstrap, str(records)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        raise LoadError(f"{way}: {done.stderr[-2000:]}")
    told: dict[str, float] = json.loads(done.stdout)
    return {"rate": records / told["seconds"], "broker_cpu": broker.cpu() - before, **told}


@contextlib.contextmanager
def _filled(bench: Bench, load: Load, records: int) -> Iterator[Broker]:
    """A broker with the records; the client's warm-up adds one more."""
    with bench.started(Odradek, "tables", num_partitions=PARTITIONS) as broker:
        broker.create(TOPIC, PARTITIONS)
        touch_memory(records * load.size)
        numbers = {"messages": records, "size": load.size, "partitions": PARTITIONS}
        run(Call("client", "produce", numbers, ("linger.ms=5", "acks=1")), broker, TOPIC)
        yield broker


# -- the program of one way


def main() -> None:
    """Read the topic in one way; print seconds and CPU seconds. Exits with 1 where records are missing."""
    way, server, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
    batches = _consumed(server, wanted) if way == CONFLUENT else _read(server, "only" if way == FILES else "off")
    next(batches)  # imports are done
    cpu, began = psutil.Process().cpu_times(), time.monotonic()
    found = sum(batches)
    seconds, now = time.monotonic() - began, psutil.Process().cpu_times()
    if found != wanted:
        sys.exit(f"{found} records, not {wanted}")
    print(json.dumps({"seconds": seconds, "client_cpu": now.user + now.system - cpu.user - cpu.system}))


def _read(server: str, local: str) -> Iterator[int]:
    from odradek.arrowtables.read import read

    yield 0
    columns = ["partition", "offset", "timestamp", "key", "value"]
    for batch in read(TOPIC, columns=columns, bootstrap_servers=server, local=local):
        yield batch.num_rows


def _consumed(server: str, wanted: int) -> Iterator[int]:
    from confluent_kafka import Consumer, TopicPartition

    yield 0
    consumer = Consumer({"bootstrap.servers": server, "group.id": TOPIC, "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    while wanted > 0:
        rows = _batch(consumer.consume(10_000, 1))
        wanted -= rows
        yield rows
    consumer.close()


def _batch(messages: Sequence[Any]) -> int:
    """The records as a record batch; how many."""
    import pyarrow as pa

    batch = pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([message.partition() for message in messages], pa.int32()),
            "offset": pa.array([message.offset() for message in messages], pa.int64()),
            "timestamp": pa.array([message.timestamp()[1] for message in messages], pa.timestamp("ms", "UTC")),
            "key": pa.array([message.key() for message in messages], pa.binary()),
            "value": pa.array([message.value() for message in messages], pa.binary()),
        }
    )
    return int(batch.num_rows)


if __name__ == "__main__":
    main()
