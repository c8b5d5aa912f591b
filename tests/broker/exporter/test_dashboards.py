"""Dashboards and alert rules for Apache Kafka show data: all metrics in their queries exist.

The names are those in the queries of Grafana's dashboard 7589 (kafka_exporter), of Strimzi's dashboards for Kafka and
for its exporter, and of Strimzi's alert rules for Kafka, as of November 2026.
"""

from __future__ import annotations

import pytest
from kafka import KafkaConsumer, KafkaProducer

from ...harness.broker import Broker
from ...harness.process import wait_until
from .conftest import Metered
from .scraping import OPENMETRICS, scrape

pytestmark = pytest.mark.live

KAFKA_EXPORTER = [
    "kafka_broker_info",
    "kafka_brokers",
    "kafka_consumergroup_current_offset",
    "kafka_consumergroup_current_offset_sum",
    "kafka_consumergroup_lag",
    "kafka_consumergroup_lag_sum",
    "kafka_consumergroup_members",
    "kafka_topic_partition_current_offset",
    "kafka_topic_partition_in_sync_replica",
    "kafka_topic_partition_leader",
    "kafka_topic_partition_leader_is_preferred",
    "kafka_topic_partition_oldest_offset",
    "kafka_topic_partition_replicas",
    "kafka_topic_partition_under_replicated_partition",
    "kafka_topic_partitions",
]
JMX = [
    "kafka_cluster_partition_atminisr",
    "kafka_cluster_partition_replicascount",
    "kafka_cluster_partition_underminisr",
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "kafka_controller_kafkacontroller_activecontrollercount",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_log_log_size",
    "kafka_log_logmanager_offlinelogdirectorycount",
    "kafka_network_requestmetrics_totaltimems",
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "kafka_server_brokertopicmetrics_bytesin_total",
    "kafka_server_brokertopicmetrics_bytesout_total",
    "kafka_server_brokertopicmetrics_failedfetchrequests_total",
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "kafka_server_brokertopicmetrics_messagesin_total",
    "kafka_server_brokertopicmetrics_totalfetchrequests_total",
    "kafka_server_brokertopicmetrics_totalproducerequests_total",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "kafka_server_kafkaserver_linux_disk_read_bytes",
    "kafka_server_kafkaserver_linux_disk_write_bytes",
    "kafka_server_replicamanager_leadercount",
    "kafka_server_replicamanager_partitioncount",
    "kafka_server_replicamanager_underminisrpartitioncount",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_server_socket_server_metrics_connection_count",
    "process_open_fds",
]
BY_TOPIC = [name for name in JMX if name.startswith("kafka_server_brokertopicmetrics_")]


@pytest.mark.parametrize(("vocabulary", "wanted"), [("kafka_exporter", KAFKA_EXPORTER), ("jmx", JMX)])
def test_every_metric_of_a_dashboard(metered: Metered, vocabulary: str, wanted: list[str]) -> None:
    broker, address = metered()
    with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send("flights", b"x").get(30)
    settings = {"bootstrap_servers": broker.bootstrap, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = KafkaConsumer("flights", group_id="g", **settings)
    wait_until(lambda: consumer.poll(500), 30, "the record is consumed")
    consumer.commit()

    def missing() -> set[str]:
        return set(wanted) - {name for name, _ in scrape(address, vocabulary)}

    found: list[set[str]] = []
    wait_until(lambda: found.append(missing()) or not found[-1], 30, fail=False)  # sizes appear with the first sweep
    consumer.close()
    assert not found[-1]
    assert set(wanted) <= {name for name, _ in scrape(address, vocabulary, OPENMETRICS)}
    labels = {found for found in scrape(address, "jmx") if found[0] in BY_TOPIC}
    assert labels == {(name, tag) for name in BY_TOPIC for tag in ((), *_tags(broker))}


def _tags(broker: Broker) -> list[tuple[tuple[str, str], ...]]:
    """The labels of each topic."""
    names = {path.name.rpartition("-")[0] for path in broker.data_dir.glob("*-0")}
    assert "flights" in names
    return [(("topic", name),) for name in names]
