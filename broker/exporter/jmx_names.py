"""The metrics under the names that Strimzi's rules for the JMX exporter make of Apache Kafka's MBeans."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from odradek.broker.exporter.request_times import RequestTimes, quantile
from odradek.broker.exporter.scrape import Sample, count
from odradek.broker.exporter.text import Family, Metrics
from odradek.ipc import latencies, slots

_TOPIC_METRICS = {
    "messagesin": "messages_in",
    "bytesin": "bytes_in",
    "bytesout": "bytes_out",
    "totalproducerequests": "produce_requests",
    "totalfetchrequests": "fetch_requests",
    "failedproducerequests": "failed_produce_requests",
    "failedfetchrequests": "failed_fetch_requests",
}

_STAGES = {
    latencies.QUEUE: "requestqueuetimems",
    latencies.LOCAL: "localtimems",
    latencies.REMOTE: "remotetimems",
    latencies.TOTAL: "totaltimems",
    latencies.THROTTLE: "throttletimems",
    latencies.SEND: "responsesendtimems",
}
_PERCENTILES = ("50", "75", "95", "98", "99", "999")


def metrics(sample: Sample) -> Metrics:
    """All of them."""
    few = [*_counters(sample), *_replica_manager(sample), *_request_metrics(sample.times)]
    return Metrics(few, [*_topic_metrics(sample), *_partitions(sample)])


def _topic_metrics(sample: Sample) -> Iterator[Family]:
    """Those of each topic, and without a label those of the broker, as the MBeans are."""
    labels = sample.labels.of("topics", ("topic",), [(topic.name,) for topic in sample.layout.topics])
    for name, counted in _TOPIC_METRICS.items():
        bean = f"kafka.server:type=BrokerTopicMetrics,name={name}"
        values, whole = sample.traffic.of_topics(counted), sample.traffic.of_broker(counted)
        yield Family(f"kafka_server_brokertopicmetrics_{name}_total", "counter", bean, labels, values, whole)


def _counters(sample: Sample) -> Iterator[Metric]:
    for name, value in {
        "kafka_server_brokertopicmetrics_replicationbytesin": sample.replicated_in,
        "kafka_server_brokertopicmetrics_replicationbytesout": sample.traffic.replicated,
        "kafka_controller_controllerstats_uncleanleaderelections": sample.total("unclean_elections"),
    }.items():
        yield CounterMetricFamily(name, "As the MBean of Apache Kafka.", value)


def _replica_manager(sample: Sample) -> Iterator[Metric]:
    values: dict[str, float] = {
        "kafka_server_replicamanager_partitioncount": len(sample.layout.names),
        "kafka_server_replicamanager_leadercount": count(sample.leads),
        "kafka_server_replicamanager_underreplicatedpartitions": count(sample.under_replicated),
        "kafka_server_replicamanager_underminisrpartitioncount": count(sample.under_min_isr),
        "kafka_server_replicamanager_atminisrpartitioncount": count(sample.at_min_isr),
        "kafka_server_replicamanager_offlinereplicacount": count(sample.in_state(slots.OFFLINE)),
        "kafka_controller_kafkacontroller_activecontrollercount": int(sample.is_controller),
        "kafka_controller_kafkacontroller_offlinepartitionscount": count(sample.layout.leaders < 0),
        "kafka_log_logmanager_offlinelogdirectorycount": sample.failed_dirs,
        "kafka_server_kafkaserver_linux_disk_read_bytes": sum(one.read_bytes for one in sample.processes),
        "kafka_server_kafkaserver_linux_disk_write_bytes": sum(one.written_bytes for one in sample.processes),
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": sample.idle,
        "kafka_network_socketserver_networkprocessoravgidle_percent": sample.idle,
        "process_open_fds": sum(one.files for one in sample.processes),
    }
    for name, value in values.items():
        yield GaugeMetricFamily(name, "As the MBean of Apache Kafka.", value)
    connections = GaugeMetricFamily(
        "kafka_server_socket_server_metrics_connection_count",
        "As the MBean of Apache Kafka.",
        labels=["networkProcessor"],
    )
    for one in sample.processes:
        if one.alive and one.is_worker:
            connections.add_metric([one.name], int(one.counters["connections"]))
    yield connections


def _request_metrics(times: RequestTimes) -> Iterator[Metric]:
    """Times in ms; the counts are of all requests, the percentiles of those of the last minutes.

    OpenMetrics wants all lines of an API together.
    """
    for stage, name in _STAGES.items():
        family = Metric(f"kafka_network_requestmetrics_{name}", "As the MBean of Apache Kafka.", "summary")
        recent = {one.api: one for one in times.recent(stage)}
        for one in times.whole(stage):
            for percent in _PERCENTILES if one.api in recent else ():
                labels = {"request": one.api, "quantile": f"0.{percent}"}
                family.add_sample(family.name, labels, quantile(recent[one.api], float(labels["quantile"])) * 1000)
            family.add_sample(f"{family.name}_count", {"request": one.api}, one.requests)
        yield family


def _partitions(sample: Sample) -> Iterator[Family]:
    layout = sample.layout
    labels = sample.labels.of("partitions", ("topic", "partition"), layout.names)
    sizes = {} if sample.log_bytes is None else {"kafka_log_log_size": sample.log_bytes}
    for name, values in {
        **sizes,
        "kafka_log_log_logendoffset": sample.column(slots.F_LEO),
        "kafka_log_log_logstartoffset": sample.column(slots.F_LOG_START),
        "kafka_cluster_partition_underreplicated": sample.under_replicated.astype(int),
        "kafka_cluster_partition_underminisr": sample.under_min_isr.astype(int),
        "kafka_cluster_partition_atminisr": sample.at_min_isr.astype(int),
        "kafka_cluster_partition_insyncreplicascount": np.where(sample.leads, layout.isr, 0),
        "kafka_cluster_partition_replicascount": np.where(sample.leads, layout.replicas, 0),
        "kafka_cluster_partition_laststableoffsetlag": sample.column(slots.F_HW) - sample.last_stable,
    }.items():
        yield Family(name, "gauge", "As the MBean of Apache Kafka.", labels, values.tolist())
