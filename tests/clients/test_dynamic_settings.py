"""Dynamic broker configs take effect in every process of a running broker; each test has one group of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from odradek.protocol import interbroker
from odradek.storage.files import checkpoints

from ..harness.broker import Broker
from ..harness.process import wait_until
from ..harness.wire import Wire
from .admin import alter_broker, changed_brokers, create_topic
from .raw.batches import NOW, batch, parse
from .raw.calls import fetch, list_offsets, produce, producer_id

pytestmark = pytest.mark.live

TOO_LARGE, INVALID_TIMESTAMP, UNSUPPORTED_VERSION, INVALID_RECORD = 10, 32, 35, 87
INVALID_REQUEST, EARLIEST = 42, -2
DAY_MS = 86_400_000
# Intervals that no dynamic config sets are short, so that a change shows at the next check.
QUICK = {
    "log_segment_delete_delay_ms": 60_000,
    "log_retention_check_interval_ms": 100,
    "producer_id_expiration_check_interval_ms": 100,
    "log_flush_offset_checkpoint_interval_ms": 100,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    running = Broker(tmp_path_factory.mktemp("settings"), **QUICK, num_io_threads=8, queued_max_requests=5)
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture
def wires(broker: Broker) -> Iterator[list[Wire]]:
    """A connection to each worker: the acceptor gives each to the one with the fewest."""
    with ExitStack() as stack:
        yield [stack.enter_context(broker.wire()) for _ in range(4)]


def everywhere(wires: list[Wire], call: Callable[[Wire], int], code: int) -> None:
    """Wait until every worker answers `code`."""
    for wire in wires:
        wait_until(lambda wire=wire: call(wire) == code, what=f"code {code}")  # type: ignore[misc]  # a default in a lambda


def start_of(wire: Wire, topic: str) -> int:
    return int(list_offsets(wire, topic, EARLIEST).offset)


def test_start_logs_settings_without_effect_once(broker: Broker) -> None:
    (line,) = [line for line in broker.log.splitlines() if "num.io.threads" in line]
    assert " WARNING " in line
    assert line.endswith("without effect in this broker: num.io.threads, queued.max.requests")


def test_produce_checks_change_in_every_worker(broker: Broker, wires: list[Wire]) -> None:
    topic = create_topic(broker)
    for configs, data, code in (
        ({"message_max_bytes": "500"}, batch([b"x" * 1000]), TOO_LARGE),
        ({"log_message_timestamp_before_max_ms": "1000"}, batch([b"x"], timestamp=NOW - DAY_MS), INVALID_TIMESTAMP),
        ({"log_cleanup_policy": "compact"}, batch([b"x"]), INVALID_RECORD),
    ):
        with changed_brokers(broker, **configs):
            everywhere(wires, lambda wire, data=data: produce(wire, topic, data).error_code, code)  # type: ignore[misc]  # a default in a lambda
        everywhere(wires, lambda wire, data=data: produce(wire, topic, data).error_code, 0)  # type: ignore[misc]  # a default in a lambda


def test_topic_config_overrides_the_dynamic_default(broker: Broker, wires: list[Wire]) -> None:
    topic, other = create_topic(broker, max_message_bytes=100_000), create_topic(broker)
    with changed_brokers(broker, message_max_bytes="500"):
        everywhere(wires, lambda wire: produce(wire, other, batch([b"x" * 1000])).error_code, TOO_LARGE)
        assert produce(wires[0], topic, batch([b"x" * 1000])).error_code == 0


def test_per_broker_config_overrides_the_cluster_wide_one(broker: Broker, wires: list[Wire]) -> None:
    topic = create_topic(broker)
    with changed_brokers(broker, message_max_bytes="500"):
        assert alter_broker(wires[0], "0", message_max_bytes="5000") == (0, None)
        everywhere(wires, lambda wire: produce(wire, topic, batch([b"x" * 1000])).error_code, 0)
        assert alter_broker(wires[0], "0", message_max_bytes=None) == (0, None)
        everywhere(wires, lambda wire: produce(wire, topic, batch([b"x" * 1000])).error_code, TOO_LARGE)


def codec(wire: Wire, topic: str) -> int:
    """The codec of the batch that a produce request stores now."""
    offset = produce(wire, topic, batch([b"x" * 1000])).base_offset
    return fetch(wire, topic, offset).records[22] & 7  # the attributes' low byte


def test_compression_type_changes_in_every_worker(broker: Broker, wires: list[Wire]) -> None:
    topic = create_topic(broker)
    with changed_brokers(broker, compression_type="gzip"):
        everywhere(wires, lambda wire: codec(wire, topic), 1)
    everywhere(wires, lambda wire: codec(wire, topic), 0)


def test_down_conversion_can_be_disabled(broker: Broker, wires: list[Wire]) -> None:
    topic = create_topic(broker)
    produce(wires[0], topic, batch([b"x"]))
    with changed_brokers(broker, log_message_downconversion_enable="false"):
        for version in (0, 1, 3):
            everywhere(wires, lambda w, v=version: fetch(w, topic, 0, version=v).error_code, UNSUPPORTED_VERSION)  # type: ignore[misc]  # a default in a lambda
        assert fetch(wires[0], topic, 100, version=3).error_code == UNSUPPORTED_VERSION, "at any offset"
        assert fetch(wires[0], topic, 0, version=4).error_code == 0
    everywhere(wires, lambda wire: fetch(wire, topic, 0, version=3).error_code, 0)


def test_segment_size_and_retention_take_effect(broker: Broker, wires: list[Wire]) -> None:
    by_size, by_age = create_topic(broker), create_topic(broker)
    for wire in wires:
        for topic in (by_size, by_age):
            assert produce(wire, topic, batch([b"x" * 1000], timestamp=NOW - DAY_MS)).error_code == 0
    assert (start_of(wires[0], by_size), start_of(wires[0], by_age)) == (0, 0)
    with changed_brokers(broker, log_segment_bytes="1100"):  # the next append rolls the segment
        for topic in (by_size, by_age):
            assert produce(wires[0], topic, batch([b"x" * 1000])).error_code == 0
        with changed_brokers(broker, log_retention_bytes="1"):
            wait_until(lambda: start_of(wires[0], by_size) == 4, what="only the active segment is left")
        with changed_brokers(broker, log_retention_ms="3600000"):
            wait_until(lambda: start_of(wires[0], by_age) == 4, what="the day-old segment is deleted")


def test_segment_delete_delay_takes_effect(broker: Broker, wires: list[Wire]) -> None:
    """Without the change the files would stay for a minute."""
    topic = create_topic(broker)
    with changed_brokers(broker, log_segment_delete_delay_ms="0"):
        request = interbroker.message_class("DeleteTopicsRequest")[1](topic_names=[topic], timeout_ms=10_000)
        assert wires[0].call(request).responses[0].error_code == 0
        wait_until(lambda: not list(broker.data_dir.glob(f"{topic}-0*")), what="its directory is removed")


@pytest.mark.parametrize("configs", [{"log_flush_interval_messages": "1"}, {"log_flush_interval_ms": "1"}])
def test_flush_interval_takes_effect(broker: Broker, wires: list[Wire], configs: dict[str, str]) -> None:
    """Flushed records are below the recovery point; without the change none is flushed."""
    topic = create_topic(broker)

    def synced() -> int:
        return checkpoints.read_offsets(broker.data_dir, checkpoints.RECOVERY_POINT).get((topic, 0), 0)

    with changed_brokers(broker, **configs):
        for wire in wires:
            produce(wire, topic, batch([b"x"]))
        wait_until(lambda: synced() == 4, what="all is synced")


def test_producer_id_expiration_takes_effect(broker: Broker, wires: list[Wire]) -> None:
    topic, (number, epoch) = create_topic(broker), producer_id(wires[0])
    row = interbroker.message_class("DescribeProducersRequest")
    asked = row[0](topics=[row.TopicRequest(name=topic, partition_indexes=[0])])

    def known(wire: Wire) -> int:
        return len(wire.call(asked).topics[0].partitions[0].active_producers)

    assert produce(wires[0], topic, batch([b"x"], producer=number, epoch=epoch, sequence=0)).error_code == 0
    assert known(wires[0]) == 1
    with changed_brokers(broker, producer_id_expiration_ms="1"):
        everywhere(wires, known, 0)


def test_log_cleaner_settings_take_effect(broker: Broker, wires: list[Wire]) -> None:
    """The cleaner pauses for 15 s, continues at one byte a second, then at full speed."""
    topic = create_topic(broker, cleanup_policy="compact", segment_bytes=2000, min_cleanable_dirty_ratio=0.01)
    for _ in range(10):
        assert produce(wires[0], topic, batch([b"x" * 500], key=b"k")).error_code == 0

    def cleaned() -> int:
        return checkpoints.read_offsets(broker.data_dir, checkpoints.CLEANER).get((topic, 0), 0)

    with changed_brokers(broker, log_cleaner_io_max_bytes_per_second="1", log_cleaner_backoff_ms="10"):
        wait_until(lambda: (topic, 0) in checkpoints.read_offsets(broker.data_dir, checkpoints.CLEANER))
        assert f"{topic}-0: compacted up to offset" not in broker.log
    with changed_brokers(broker, log_cleaner_backoff_ms="10"):
        wait_until(lambda: cleaned() > 0, what="the topic is compacted")
    assert [record.value for record in parse(fetch(wires[0], topic, 0).records)][:1] == [b"x" * 500]


def answers(broker: Broker) -> bool:
    """Whether a new connection is served."""
    try:
        with broker.wire(timeout=5) as wire:
            return bool(wire.api_versions())
    except (OSError, EOFError):
        return False


def test_connection_limits_per_ip_take_effect(broker: Broker, wires: list[Wire]) -> None:
    for configs in ({"max_connections_per_ip": "1"}, {"max_connections_per_ip_overrides": "127.0.0.1:1"}):
        with changed_brokers(broker, **configs):
            wait_until(lambda: not answers(broker), what="no further connection is taken")
        wait_until(lambda: answers(broker), what="connections are accepted again")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_io_threads", "16"),
        ("num_network_threads", "4"),
        ("background_threads", "12"),
        ("num_recovery_threads_per_data_dir", "2"),
        ("listeners", "PLAINTEXT://127.0.0.1:1"),
        ("metric_reporters", "x"),
        ("ssl_keystore_location", "/x"),
        ("group_max_size", "5"),
        ("transaction_max_timeout_ms", "5"),
        ("max_connections_per_ip_overrides", "nobody"),
        ("log_cleaner_threads", "3"),
        ("log_cleaner_dedupe_buffer_size", "1000"),
        ("log_retention_ms", "0"),
        ("max_connections", "0"),
    ],
)
def test_refusal_names_the_config_key(broker: Broker, wires: list[Wire], name: str, value: str) -> None:
    for whose in ("", "0"):
        code, message = alter_broker(wires[0], whose, **{name: value})
        assert code == INVALID_REQUEST
        assert name.replace("_", ".") in (message or "")
