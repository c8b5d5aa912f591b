"""Apache Kafka 3.9.1 itself: its tool accepts our files, we open its directory, and it opens ours again."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.storage.dirs.logdirs import partitions_in
from odradek.storage.files import checkpoints, names
from odradek.storage.recovery.recovery import Recovered, recover
from odradek.storage.segment import index_files
from odradek.storage.segment.scan import Scan
from odradek.storage.tools.check import check
from tests.harness import java
from tests.harness.apache import Apache
from tests.harness.process import die_with_parent, wait_until
from tests.storage.logs import Interval, batch, message, run_of_batches, write_segment

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]
RECORDS = 3000
ENDS = [RECORDS // 2 + 22, RECORDS // 2]  # ten records and a marker for each of two transactions


def produce(bootstrap: str) -> None:
    """Compressed, idempotent and transactional batches over two partitions, in small segments."""
    from kafka import KafkaProducer
    from kafka.admin import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic("t", 2, 1, topic_configs={"segment.bytes": "20000"})])
    admin.close()
    for codec in (None, "gzip", "snappy", "lz4", "zstd"):
        producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, batch_size=8000)
        for i in range(RECORDS // 5):
            producer.send("t", key=b"%d" % i, value=b"v" * 150, partition=i % 2)
        producer.close()
    transactional = KafkaProducer(bootstrap_servers=bootstrap, transactional_id="tx")
    transactional.init_transactions()
    for outcome in (transactional.commit_transaction, transactional.abort_transaction):
        transactional.begin_transaction()
        for i in range(10):
            transactional.send("t", value=b"%d" % i, partition=0)
        transactional.flush()
        outcome()
    transactional.close()
    wait_until(lambda: end_offsets(bootstrap) == ENDS, 30, "the markers of both transactions are written")


def end_offsets(bootstrap: str) -> list[int]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    ends = consumer.end_offsets(partitions)
    consumer.close()
    return [ends[partition] for partition in partitions]


@pytest.fixture(scope="module")
def kafka_dirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """The data of one broker: copied after a kill -9, and after it recovered and stopped cleanly."""
    folder = tmp_path_factory.mktemp("apache")
    broker = Apache("3.9.1", folder).start()
    try:
        produce(broker.bootstrap)
        assert broker.process is not None
        broker.process.kill()
        broker.process.wait()
        shutil.copytree(broker.data_dir, folder / "killed")
        start_again(broker)
        broker.stop()
        shutil.copytree(broker.data_dir, folder / "stopped")
        yield {"killed": folder / "killed", "stopped": folder / "stopped"}
    finally:
        broker.stop()


def start_again(broker: Apache) -> None:
    """Starts the broker on data that is formatted already."""
    with broker.log_file.open("ab") as log:
        broker.process = subprocess.Popen(
            java.command("3.9.1", "kafka.Kafka", str(broker.properties)),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            preexec_fn=die_with_parent,
        )
    wait_until(broker._ready, 60, "Apache Kafka answers")


def open_all(data: Path) -> dict[str, Recovered]:
    """Open a log directory as the broker's janitor and workers do at start."""
    clean = checkpoints.consume_clean_shutdown(data)
    points = checkpoints.read_offsets(data, checkpoints.RECOVERY_POINT)
    starts = checkpoints.read_offsets(data, checkpoints.LOG_START)
    opened = {}
    for place in partitions_in(data):
        key = (place.name.topic, place.name.partition)
        opened[place.path.name] = recover(
            place.path, Interval(), clean=clean, recovery_point=points.get(key, 0), log_start=starts.get(key, 0)
        )
    return opened


def offsets_in(directory: Path) -> list[int]:
    """First offsets of all batches of a partition."""
    found = []
    for path in sorted(directory.glob("*.log")):
        with path.open("rb") as file:
            found += [b.base_offset for b in Scan(file.fileno())]
    return found


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_directory_of_kafkas_opens(kafka_dirs: dict[str, Path], tmp_path: Path, how: str) -> None:
    data = tmp_path / "data"
    shutil.copytree(kafka_dirs[how], data)
    before = {place.path.name: offsets_in(place.path) for place in partitions_in(data)}
    opened = open_all(data)
    assert [opened["t-0"].leo, opened["t-1"].leo] == ENDS
    assert len(opened["t-0"].segments) > 1
    assert [note for found in opened.values() for note in found.notes] == []
    assert len(opened["t-0"].producers) == 6
    assert opened["t-0"].first_unstable == -1
    assert checkpoints.read_partition_metadata(data / "t-0") == checkpoints.read_partition_metadata(data / "t-1")
    meta = checkpoints.read_meta_properties(data)
    assert meta is not None
    assert (meta.version, meta.node_id) == (1, 0)
    assert {name: offsets_in(data / name) for name in before} == before
    assert [str(fault) for fault in check(data, deep=True)] == []


def test_kafkas_preallocated_indexes_end_in_zeros(kafka_dirs: dict[str, Path]) -> None:
    """Otherwise the test above would not cover them."""
    active = max((kafka_dirs["killed"] / "t-1").glob("*.index"))
    assert active.stat().st_size == 10 << 20
    base = int(active.stem)
    assert index_files.read_offset_index(active, base) is not None


def test_the_indexes_we_rebuild_are_kafkas_own(kafka_dirs: dict[str, Path], tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(kafka_dirs["stopped"], data)
    sealed = sorted((data / "t-0").glob("*.log"))[0]
    kinds = (names.INDEX, names.TIME_INDEX)
    theirs = {kind: sealed.with_suffix(kind).read_bytes() for kind in kinds}
    assert theirs[names.INDEX]
    for kind in kinds:
        sealed.with_suffix(kind).unlink()
    open_all(data)
    assert {kind: sealed.with_suffix(kind).read_bytes() for kind in kinds} == theirs


def test_kafka_reads_all_of_a_log_that_we_recovered(kafka_dirs: dict[str, Path], tmp_path: Path) -> None:
    from kafka import KafkaConsumer, TopicPartition

    broker = Apache("3.9.1", tmp_path)
    shutil.copytree(kafka_dirs["killed"], broker.data_dir)
    opened = open_all(broker.data_dir)
    start_again(broker)
    try:
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
        partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
        consumer.assign(partitions)
        assert end_offsets(broker.bootstrap) == [opened["t-0"].leo, opened["t-1"].leo]
        count = 0
        while count < RECORDS + 20 and (records := consumer.poll(5000)):
            count += sum(map(len, records.values()))
        assert count == RECORDS + 20
        consumer.close()
    finally:
        broker.stop()
    assert [line for line in broker.log_file.read_text().splitlines() if "ERROR" in line] == []


@pytest.mark.smoke
def test_kafkas_tool_accepts_our_files(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    old = [message(i, timestamp=500 + i) for i in range(200)]
    write_segment(directory, 0, [*old, *run_of_batches(200, 300)])
    write_segment(directory, 500, [batch(500 + 3 * i, 3, size=900, timestamp=2000 - i % 7) for i in range(50)])
    recover(directory, Interval())
    paths = ",".join(str(p) for p in sorted(directory.iterdir()) if p.suffix in (names.LOG, *names.INDEXES))
    for options in (["--deep-iteration"], ["--verify-index-only"], ["--index-sanity-check"]):
        done = java.run("3.9.1", "kafka.tools.DumpLogSegments", "--files", paths, *options)
        complaints = [line for line in done.stderr.decode().splitlines() if not line.startswith("log4j")]
        assert complaints == []
        assert b"isvalid: false" not in done.stdout
        assert b"invalid bytes" not in done.stdout
