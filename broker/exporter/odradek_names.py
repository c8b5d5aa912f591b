"""The metrics under our own names: `odradek_…`, with Kafka's terms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from odradek.broker.exporter.group_lag import Lag
from odradek.broker.exporter.request_times import RequestTimes
from odradek.broker.exporter.scrape import ProcessSample, Sample, count
from odradek.broker.exporter.text import Family, Metrics
from odradek.ipc import latencies, slots
from odradek.ipc.processes import RETIRED, STATES
from odradek.storage.files.disks import DiskSpace

_CERTIFICATE = "certificate_expires"
_Family = type[CounterMetricFamily] | type[GaugeMetricFamily]
_COUNTERS = {
    "starts": "Starts of the process of this role since the broker started.",
    "requests": "Requests answered.",
    "produce_requests": "Produce requests answered.",
    "fetch_requests": "Fetch requests answered.",
    "messages_in": "Records appended.",
    "bytes_in": "Bytes received from clients.",
    "bytes_out": "Bytes sent to clients.",
    "appends": "Appends to logs; one may have the batches of many requests.",
    "errors": "Unexpected errors; the log has the details.",
    "handoffs": "Connections handed to workers.",
    "lock_waits": "Times that an append waited for a partition's lock.",
    "recovered": "Logs recovered.",
}
_GAUGES = {
    "connections": "Open connections.",
    "delayed_operations": "Requests that wait for data, for followers or for a timeout.",
}
_STAGES = {
    latencies.QUEUE: ("request_queue_seconds", "Time until a request's turn in the worker's event loop."),
    latencies.LOCAL: ("request_local_seconds", "Time that a worker works on a request."),
    latencies.REMOTE: (
        "request_remote_seconds", "Time that a request waits for records, followers, the disk or another process."
    ),
    latencies.TOTAL: ("request_seconds", "Time from a request's arrival to its answer; Produce by batch."),
    latencies.THROTTLE: ("request_throttle_seconds", "Throttle time in the answer to a request, for a quota."),
    latencies.SEND: ("request_send_seconds", "Time until the kernel has taken an answer, while its client reads."),
}  # fmt: skip
_TOPIC_COUNTS = {
    "messages_in": "Records of producers appended.",
    "bytes_in": "Bytes of records appended for producers, as stored.",
    "bytes_out": "Bytes of records sent to consumers.",
    "produce_requests": "Produce requests, one for each partition.",
    "fetch_requests": "Fetch requests, one for each partition.",
    "failed_produce_requests": "Produce requests that failed for a reason that Kafka counts.",
    "failed_fetch_requests": "Fetch requests that failed for a reason that Kafka counts.",
}
_FIELDS = {
    "log_end_offset": (slots.F_LEO, "Offset of the next record of this broker's replica."),
    "log_start_offset": (slots.F_LOG_START, "Offset of the first record of this broker's replica."),
    "high_watermark": (slots.F_HW, "Offset up to which consumers may read."),
    "flushed_offset": (slots.F_FLUSHED, "Offset up to which the log is synced to disk."),
    "leader_epoch": (slots.F_LEADER_EPOCH, "Number of the leader's election."),
}


def metrics(sample: Sample) -> Metrics:
    """All of them."""
    few = [
        *_of_the_broker(sample),
        *_broker_counters(sample),
        *_of_disks(sample.disks),
        *_of_processes(sample.processes),
        *_of_requests(sample.times),
    ]
    return Metrics(few, [*_of_topics(sample), *_of_partitions(sample), *_log_sizes(sample), *_of_groups(sample)])


def _of_the_broker(sample: Sample) -> Iterator[Metric]:
    info = {"broker_id": str(sample.broker), "cluster_id": sample.snapshot.cluster_id}
    yield InfoMetricFamily("odradek_broker", "This broker and its cluster.", info)
    for name, (value, text) in _broker_values(sample).items():
        yield GaugeMetricFamily(f"odradek_{name}", text, value)
    idle = "Share of time in which the workers used no CPU, in the last minute."
    yield GaugeMetricFamily("odradek_workers_idle_ratio", idle, sample.idle)


def _broker_counters(sample: Sample) -> Iterator[Metric]:
    for name, text, value in (
        ("replication_bytes_in", "Bytes of records copied from leaders.", sample.replicated_in),
        ("replication_bytes_out", "Bytes of records sent to followers.", sample.traffic.replicated),
        (
            "unclean_leader_elections", "Leaders elected by this broker, as controller, that were not in sync.",
            sample.total("unclean_elections"),
        ),
    ):  # fmt: skip
        yield CounterMetricFamily(f"odradek_{name}", text, value)


def _of_topics(sample: Sample) -> Iterator[Family]:
    labels = sample.labels.of("topics", ("topic",), [(topic.name,) for topic in sample.layout.topics])
    for name, text in _TOPIC_COUNTS.items():
        yield Family(f"odradek_topic_{name}_total", "counter", text, labels, sample.traffic.of_topics(name))


def _of_disks(disks: Mapping[str, DiskSpace]) -> Iterator[Metric]:
    for name, text in (
        ("size", "Size of the disk of a log directory."),
        ("free", "Free bytes on the disk of a log directory."),
    ):
        family = GaugeMetricFamily(f"odradek_log_dir_{name}_bytes", text, labels=["log_dir"])
        for log_dir, usage in disks.items():
            family.add_metric([log_dir], getattr(usage, name))
        yield family


def _broker_values(sample: Sample) -> dict[str, tuple[int, str]]:
    return {
        "brokers": (len(sample.snapshot.brokers), "Brokers in the cluster."),
        "topics": (len(sample.snapshot.topics), "Topics in the cluster."),
        "metadata_version": (sample.snapshot.version, "Version of the metadata that the processes share."),
        "active_controller": (int(sample.is_controller), "1 on the broker that is the controller."),
        "partitions": (len(sample.layout.names), "Partitions with a replica on this broker."),
        "leader_partitions": (count(sample.leads), "Partitions that this broker leads."),
        "under_replicated_partitions": (
            count(sample.under_replicated), "Partitions led here whose ISR lacks a replica."
        ),
        "under_min_isr_partitions": (
            count(sample.under_min_isr), "Partitions led here whose ISR is smaller than min.insync.replicas."
        ),
        "at_min_isr_partitions": (
            count(sample.at_min_isr), "Partitions led here whose ISR is just min.insync.replicas."
        ),
        "leaderless_partitions": (
            count(sample.layout.leaders < 0), "Partitions with a replica on this broker that have no leader."
        ),
        "offline_replicas": (
            count(sample.in_state(slots.OFFLINE)), "Replicas of this broker that are offline."
        ),
        "failed_log_dirs": (sample.failed_dirs, "Log directories that are offline since their disks failed."),
        "recovering_replicas": (
            count(sample.in_state(slots.RECOVERING)), "Replicas whose logs are being recovered."
        ),
    }  # fmt: skip


def _of_processes(processes: list[ProcessSample]) -> Iterator[Metric]:
    living = [process for process in processes if process.alive]
    certified = [process for process in living if process.counters[_CERTIFICATE]]
    for name, text in _COUNTERS.items():
        yield _by_process(CounterMetricFamily, name, text, processes, _column(name))
    for name, text in _GAUGES.items():
        yield _by_process(GaugeMetricFamily, name, text, living, _column(name))
    yield _states(processes)
    yield _by_process(CounterMetricFamily, "process_cpu_seconds", "CPU time.", living, lambda one: one.cpu_s)
    memory = "Resident memory, what is shared included."
    yield _by_process(GaugeMetricFamily, "process_resident_memory_bytes", memory, living, lambda one: one.rss)
    yield _by_process(GaugeMetricFamily, "process_open_files", "Open descriptors.", living, lambda one: one.files)
    read = "Bytes read from disks."
    yield _by_process(CounterMetricFamily, "process_disk_read_bytes", read, living, lambda one: one.read_bytes)
    wrote = "Bytes written to disks, or to be written."
    yield _by_process(CounterMetricFamily, "process_disk_written_bytes", wrote, living, lambda one: one.written_bytes)
    expiry = "When the first certificate of the listeners expires."
    name = "certificate_expiry_timestamp_seconds"
    yield _by_process(GaugeMetricFamily, name, expiry, certified, _column(_CERTIFICATE))


def _column(name: str) -> Callable[[ProcessSample], int]:
    return lambda process: int(process.counters[name])


def _states(processes: list[ProcessSample]) -> Metric:
    family = GaugeMetricFamily(
        "odradek_process_state", "1 for the state that the process is in.", labels=["process", "state"]
    )
    for process in processes:
        if process.state != RETIRED:
            for state in STATES:
                family.add_metric([process.name, state], int(state == process.state))
    return family


def _by_process(
    family: _Family, name: str, text: str, processes: list[ProcessSample], value: Callable[[ProcessSample], float]
) -> Metric:
    found = family(f"odradek_{name}", text, labels=["process"])
    for process in processes:
        found.add_metric([process.name], value(process))
    return found


def _of_requests(times: RequestTimes) -> Iterator[Metric]:
    for stage, (name, text) in _STAGES.items():
        family = HistogramMetricFamily(f"odradek_{name}", text, labels=["api"])
        for one in times.whole(stage):
            buckets = [(str(end), count) for end, count in one.ends]
            family.add_metric([one.api], [*buckets, ("+Inf", one.requests)], one.seconds)
        yield family


def _of_partitions(sample: Sample) -> Iterator[Family]:
    labels = sample.labels.of("partitions", ("topic", "partition"), sample.layout.names)
    for name, (number, text) in _FIELDS.items():
        yield Family(f"odradek_partition_{name}", "gauge", text, labels, sample.column(number).tolist())
    for name, values, text in (
        ("last_stable_offset", sample.last_stable, "Offset up to which all transactions are complete."),
        ("leader", sample.layout.leaders, "Broker id of the leader, -1 without one."),
        ("replicas", sample.layout.replicas, "Number of replicas."),
        ("in_sync_replicas", sample.layout.isr, "Size of the ISR."),
    ):
        yield Family(f"odradek_partition_{name}", "gauge", text, labels, values.tolist())


def _log_sizes(sample: Sample) -> Iterator[Family]:
    if sample.log_bytes is not None:
        labels = sample.labels.of("partitions", ("topic", "partition"), sample.layout.names)
        text = "Bytes of the log's segments, of the last half minute."
        yield Family("odradek_partition_log_bytes", "gauge", text, labels, sample.log_bytes.tolist())


def _of_groups(sample: Sample) -> Iterator[Family]:
    committed = [(*lag[:3], lag.committed) for lag in sample.lags]
    for name, text, rows in (
        ("committed_offset", "Offset that the group has committed.", committed),
        ("lag", "Records that the group has not read yet.", _known(sample.lags, "records")),
        ("lag_seconds", "Age of the record that the group reads next; 0 at the end.", _known(sample.lags, "seconds")),
    ):
        labels = sample.labels.of(name, ("group", "topic", "partition"), [row[:3] for row in rows])
        yield Family(f"odradek_group_{name}", "gauge", text, labels, [row[3] for row in rows])
    members = sorted(sample.members.items())
    labels = sample.labels.of("members", ("group",), [(group,) for group, _ in members])
    yield Family("odradek_group_members", "gauge", "Members of the group.", labels, [count for _, count in members])


def _known(lags: list[Lag], field: str) -> list[tuple[str, str, int, float]]:
    found = ((*lag[:3], getattr(lag, field)) for lag in lags)
    return [row for row in found if row[3] is not None]
