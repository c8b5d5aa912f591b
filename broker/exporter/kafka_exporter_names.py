"""The metrics under the names of kafka_exporter (github.com/danielqsj/kafka_exporter): topics and their offsets.

That program asks all brokers; this broker reports the partitions that it leads, so that the sum over all brokers is
the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from odradek.broker.exporter.scrape import Sample
from odradek.broker.exporter.text import Family, Metrics
from odradek.ipc import slots


def metrics(sample: Sample) -> Metrics:
    """All of them."""
    led = sample.leads
    layout = sample.layout
    names = [name for name, leads in zip(layout.names, led.tolist(), strict=True) if leads]
    labels = sample.labels.of("led", ("topic", "partition"), names)
    values = {
        "current_offset": (sample.column(slots.F_HW), "Current Offset of a Broker at Topic/Partition"),
        "oldest_offset": (sample.column(slots.F_LOG_START), "Oldest Offset of a Broker at Topic/Partition"),
        "leader": (layout.leaders, "Leader Broker ID of this Topic/Partition"),
        "leader_is_preferred": (
            (layout.leaders == layout.preferred).astype(int), "1 if Topic/Partition is using the Preferred Broker"
        ),
        "replicas": (layout.replicas, "Number of Replicas for this Topic/Partition"),
        "in_sync_replica": (layout.isr, "Number of In-Sync Replicas for this Topic/Partition"),
        "under_replicated_partition": (
            sample.under_replicated.astype(int), "1 if Topic/Partition is under Replicated"
        ),
    }  # fmt: skip
    many = [
        Family(f"kafka_topic_partition_{name}", "gauge", text, labels, column[led].tolist())
        for name, (column, text) in values.items()
    ]
    few = [_brokers(sample), _addresses(sample), _partitions(sample), _members(sample), *_sums(sample)]
    return Metrics(few, [*many, *_groups(sample)])


def _brokers(sample: Sample) -> Metric:
    return GaugeMetricFamily("kafka_brokers", "Number of Brokers in the Kafka Cluster.", len(sample.snapshot.brokers))


def _addresses(sample: Sample) -> Metric:
    """Each broker of itself, so that each has one line in a cluster."""
    family = GaugeMetricFamily("kafka_broker_info", "Information about the Kafka Broker.", labels=["id", "address"])
    own = sample.snapshot.brokers.get(sample.broker)
    for host, port in [*own.endpoints.values()][:1] if own is not None else []:
        family.add_metric([str(sample.broker), f"{host}:{port}"], 1)
    return family


def _sums(sample: Sample) -> Iterator[Metric]:
    """By group and topic, over the partitions whose lag is known."""
    committed: Counter[tuple[str, str]] = Counter()
    behind: Counter[tuple[str, str]] = Counter()
    for lag in sample.lags:
        committed[lag.group, lag.topic] += lag.committed
        behind[lag.group, lag.topic] += lag.records or 0
    for name, text, sums in (
        ("current_offset_sum", "Current Offset of a ConsumerGroup at Topic for all partitions", committed),
        ("lag_sum", "Current Approximate Lag of a ConsumerGroup at Topic for all partitions", behind),
    ):
        family = GaugeMetricFamily(f"kafka_consumergroup_{name}", text, labels=["consumergroup", "topic"])
        for labels, value in sums.items():
            family.add_metric(labels, value)
        yield family


def _partitions(sample: Sample) -> Metric:
    """Of the topics whose first partition is led here, so that each has one line in a cluster."""
    family = GaugeMetricFamily("kafka_topic_partitions", "Number of partitions for this Topic", labels=["topic"])
    led = [name for name, leads in zip(sample.layout.names, sample.leads.tolist(), strict=True) if leads]
    counts = Counter({topic: len(sample.snapshot.topics[topic]) for topic, index in led if index == 0})
    for topic, count in counts.items():
        family.add_metric([topic], count)
    return family


def _members(sample: Sample) -> Metric:
    family = GaugeMetricFamily(
        "kafka_consumergroup_members", "Amount of members in a consumer group", labels=["consumergroup"]
    )
    for group, count in sorted(sample.members.items()):
        family.add_metric([group], count)
    return family


def _groups(sample: Sample) -> Iterator[Family]:
    """A lag that is not known is -1, as that program has it."""
    labels = sample.labels.of("groups", ("consumergroup", "topic", "partition"), [lag[:3] for lag in sample.lags])
    committed = [lag.committed for lag in sample.lags]
    lags = [-1 if lag.records is None else lag.records for lag in sample.lags]
    yield Family(
        "kafka_consumergroup_current_offset", "gauge",
        "Current Offset of a ConsumerGroup at Topic/Partition", labels, committed,
    )  # fmt: skip
    yield Family(
        "kafka_consumergroup_lag", "gauge",
        "Current Approximate Lag of a ConsumerGroup at Topic/Partition", labels, lags,
    )  # fmt: skip
