"""The loads of the table: the clients' work on each broker, and Odradek's targets compared with Apache Kafka."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from odradek.loadtest.harness import wire
from odradek.loadtest.harness.brokers import Broker
from odradek.loadtest.harness.load_clients import Call, Cost, LoadError, command, run
from odradek.loadtest.harness.tools import touch_memory


@dataclass(frozen=True)
class Target:
    """Odradek over Apache Kafka: at least `rate`, at most `cpu`, `p50` and `p99`; 0 is no target. `floor`: in msg/s."""

    rate: float = 0
    cpu: float = 0
    p99: float = 0
    floor: float = 0
    p50: float = 0


@dataclass(frozen=True)
class Row:
    """One line of the table.

    `kafka` runs on Odradek with `more` times the messages, because it finishes sooner and a short run is imprecise.
    `amqp` runs on RabbitMQ. `fill` runs before and does not count; its topic has a name, and each row with that name
    reads it. Reading empties an AMQP queue, so `amqp_fill` runs before each run. A `cold` row runs on freshly started
    brokers, each time.
    """

    key: str
    title: str
    kafka: Call
    target: Target = Target()
    more: int = 1
    amqp: Call | None = None
    fill: tuple[str, Call] | None = None
    amqp_fill: Call | None = None
    latency: bool = False
    cold: bool = False

    def call(self, broker: Broker, scale: float) -> Call | None:
        """The call for `broker`; None when there is nothing to compare."""
        if broker.speaks == "amqp":
            return self.amqp and self.amqp.scaled(scale)
        return self.kafka.scaled(scale * (self.more if broker.key == "odradek" else 1))


_IDEMPOTENT = ("enable.idempotence=true", "acks=all")


def _send(messages: int, size: int, batch: int, *more: str, producers: int = 1) -> Call:
    settings = (f"batch.num.messages={batch}", "linger.ms=5", *(more if "acks=all" in more else ("acks=1", *more)))
    return Call("client", "produce", {"messages": messages, "size": size, "producers": producers}, settings)


def _publish(messages: int, inflight: int, producers: int = 1, size: int = 200) -> Call:
    numbers = {"messages": messages, "size": size, "inflight": inflight, "producers": producers}
    return Call("amqp", "produce", numbers)


def _read(messages: int, consumers: int = 1) -> Call:
    return Call("client", "consume", {"messages": messages, "size": 1000, "consumers": consumers})


def _tail(program: str, consumers: int, rate: int) -> Call:
    return Call(program, "tail", {"rate": rate, "seconds": 5, "size": 200, "consumers": consumers})


_GB2 = _send(2_000_000, 1000, 10_000)
_GB2_IDEMPOTENT = _send(2_000_000, 1000, 10_000, *_IDEMPOTENT)
_READ = Target(rate=1.2, cpu=1 / 3)
_FIVE = Target(rate=3, cpu=1 / 3)
_FIFTY = Target(rate=2, cpu=1 / 3, floor=400_000)
_FULL = Target(rate=1.2, cpu=0.7)
_TAIL = Target(p99=0.7, cpu=1 / 2)

ROWS = (
    Row(
        "batch1",
        "200 B, batch 1, acks=1, many in flight",
        _send(50_000, 200, 1),
        Target(rate=4, cpu=1 / 6, floor=50_000),
        more=5,
        amqp=_publish(30_000, 10_000),
    ),
    Row("five", "… five in flight", _send(50_000, 200, 1, "max.in.flight=5"), _FIVE, 3, amqp=_publish(15_000, 5)),
    Row("five-idem", "… five in flight, idempotent", _send(50_000, 200, 1, *_IDEMPOTENT), _FIVE, 3),
    Row(
        "five-idem-raw",
        "… the same over a plain socket",
        Call("raw", "produce", {"messages": 50_000, "size": 200, "inflight": 5, "idempotent": 1}),
        _FIVE,
        3,
    ),
    Row(
        "one",
        "… one in flight",
        _send(30_000, 200, 1, "max.in.flight=1"),
        Target(rate=1.3, cpu=0.6),
        amqp=_publish(1000, 1),
    ),
    Row(
        "one-20",
        "… 20 producers, one in flight each",
        _send(4000, 200, 1, "max.in.flight=1", producers=20),
        Target(rate=1.5, cpu=1 / 2),
        2,
        amqp=_publish(500, 1, producers=20),
    ),
    Row(
        "one-20-raw",
        "… the same over plain sockets",
        Call("raw", "produce", {"messages": 80_000, "size": 200, "connections": 20}),
        more=2,
    ),
    Row("batch50", "200 B, batch 50, acks=1", _send(1_500_000, 200, 50), _FIFTY, 2),
    Row("batch50-idem", "… idempotent", _send(600_000, 200, 50, *_IDEMPOTENT), _FIFTY, 2),
    Row(
        "batch50-idem-raw",
        "… the same over a plain socket",
        Call("raw", "produce", {"messages": 1_000_000, "size": 200, "batch": 50, "inflight": 5, "idempotent": 1}),
        _FIFTY,
        2,
    ),
    Row(
        "full",
        "1 KB, full batches",
        _send(800_000, 1000, 10_000),
        _FULL,
        amqp=_publish(30_000, 10_000, size=1000),
    ),
    Row("full-lz4", "… lz4", _send(800_000, 1000, 10_000, "compression.codec=lz4"), _FULL),
    Row(
        "consume",
        "consume 2 GB from the start, one consumer, just started broker",
        _read(2_000_000),
        _READ,
        fill=("plain", _GB2),
        amqp=Call("amqp", "consume", {"messages": 40_000, "size": 1000}),
        amqp_fill=_publish(40_000, 10_000, size=1000),
        cold=True,
    ),
    Row(
        "consume-idem",
        "… written with idempotence",
        _read(2_000_000),
        _READ,
        fill=("idempotent", _GB2_IDEMPOTENT),
        cold=True,
    ),
    Row("consume10", "… ten consumers, 0.4 GB each", _read(400_000, 10), _READ, fill=("plain", _GB2), cold=True),
    Row(
        "consume10-idem",
        "… ten consumers, written with idempotence",
        _read(400_000, 10),
        _READ,
        fill=("idempotent", _GB2_IDEMPOTENT),
        cold=True,
    ),
    Row(
        "consume-warm",
        "… one consumer, after 2 GB were read from the broker",
        _read(2_000_000),
        fill=("plain", _GB2),
    ),
    Row(
        "consume10-warm",
        "… ten consumers, after 4 GB were read from the broker",
        _read(400_000, 10),
        fill=("plain", _GB2),
    ),
    Row(
        "latency",
        "2,000 msg/s of 200 B, produce to ack",
        Call("client", "latency", {"rate": 2000, "seconds": 5, "size": 200}, ("acks=1", "linger.ms=0")),
        amqp=Call("amqp", "latency", {"rate": 2000, "seconds": 5, "size": 200}),
        latency=True,
    ),
    Row(
        "tail1",
        "2,000 msg/s, one tail consumer, end to end",
        _tail("raw", 1, 2000),
        _TAIL,
        amqp=_tail("amqp", 1, 2000),
        latency=True,
    ),
    Row(
        "tail100",
        "50 msg/s, 100 tail consumers on one partition",
        _tail("raw", 100, 50),
        _TAIL,
        amqp=_tail("amqp", 100, 50),
        latency=True,
    ),
)


def once(row: Row, broker: Broker, scale: float) -> Cost:
    """Run `row`, or `scale` of it, on `broker`. LoadError where it has no `call` for that broker."""
    call = row.call(broker, scale)
    if call is None:
        raise LoadError(f"{row.key} has no result for {broker.name}")
    if call.mode == "produce":
        touch_memory(call.sent * call.size)
    if broker.speaks == "amqp":
        return _once_amqp(row, call, broker, scale)
    if row.fill:
        return run(call, broker, _filled(*row.fill, broker, scale))
    topic = _fresh(row.key)
    broker.create(topic)
    cost = run(call, broker, topic)
    if call.mode == "produce" and call.program == "client":
        check_end(broker, topic, call)
    broker.delete(topic)
    return cost


def prepare(row: Row, broker: Broker, scale: float) -> None:
    """Fill the topic that `row` reads."""
    if row.fill and broker.speaks == "kafka":
        _filled(*row.fill, broker, scale)


def _once_amqp(row: Row, call: Call, broker: Broker, scale: float) -> Cost:
    queue = _fresh(row.key)
    if row.amqp_fill:
        run(row.amqp_fill.scaled(scale), broker, queue)
    cost = run(call, broker, queue)
    command(Call("amqp", "delete", {"consumers": call.numbers.get("consumers", 0)}), broker, queue)
    return cost


def _filled(name: str, call: Call, broker: Broker, scale: float) -> str:
    """The topic for `name`, which `call` fills at the first use."""
    if name not in broker.filled:
        topic = _fresh(name)
        broker.create(topic)
        run(call.scaled(scale), broker, topic)
        check_end(broker, topic, call.scaled(scale))
        broker.filled[name] = topic
    return broker.filled[name]


def check_end(broker: Broker, topic: str, call: Call) -> None:
    """LoadError when the log does not end after the messages of `call` and the one that each producer begins with."""
    found, expected = wire.end(broker.port, topic), call.sent + call.numbers.get("producers", 1)
    if found != expected:
        raise LoadError(f"{broker.name}: {topic} should end at {expected}, but ends at {found}")


def _fresh(key: str) -> str:
    return f"bench-{key}-{uuid.uuid4().hex[:8]}"
