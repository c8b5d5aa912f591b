"""One directory used in turn: Apache Kafka 3.9.1 writes, Odradek adopts it and writes, Apache Kafka reads all records.

Apache Kafka leaves its directory after a clean stop or a SIGKILL.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from ..clients.drivers import DRIVERS
from ..clients.transactions import Confluent
from ..harness.apache import Apache
from ..harness.process import wait_until
from ..storage.test_apache import RECORDS, produce, start_again

pytestmark = [pytest.mark.needs("java-3.9.1", "kcat"), pytest.mark.long]
TRANSACTIONAL = 10  # of each of two transactions, the second of which was aborted
OURS = 200


def committed(bootstrap: str) -> list[str]:
    """`partition offset` of every record that a reader with read_committed gets (librdkafka's default)."""
    words = ["kcat", "-b", bootstrap, "-C", "-t", "t", "-o", "beginning", "-e", "-q", "-f", "%p %o\n"]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_kafka_reads_all_records_after_odradek_wrote(fresh_broker: Any, tmp_path: Path, how: str) -> None:
    apache = Apache("3.9.1", tmp_path).start()
    try:
        produce(apache.bootstrap)
        if how == "killed":
            assert apache.process is not None
            apache.process.kill()
            apache.process.wait()
        else:
            apache.stop()
        broker = fresh_broker(start=False)
        broker.data_dir = apache.data_dir
        broker.set(log_dirs=str(apache.data_dir))
        broker.start()
        theirs = committed(broker.bootstrap)
        assert len(theirs) == RECORDS + TRANSACTIONAL
        for partition in range(2):
            DRIVERS["confluent-kafka"].write(broker.bootstrap, "t", partition, range(OURS), numbered, "lz4")
        transact(broker, commit=False)
        transact(broker, commit=True)
        broker.stop()
        assert "WARNING" not in recovery_lines(broker.log)
        checked = broker.command("check", str(apache.data_dir))
        assert checked.returncode == 0, checked.stdout
        start_again(apache)
        assert len(committed(apache.bootstrap)) == len(theirs) + 2 * OURS + 1
        transact(apache, commit=True)
        wait_until(lambda: len(committed(apache.bootstrap)) == len(theirs) + 2 * OURS + 2, 60, "the last transaction")
        assert not [line for line in apache.log_file.read_text().splitlines() if "ERROR" in line]
    finally:
        apache.stop()


def transact(broker: Any, commit: bool) -> None:
    """One transaction, always with the same transactional id."""
    producer = Confluent(broker, "to and fro")
    producer.begin()
    producer.send("t", b"in a transaction")
    producer.commit() if commit else producer.abort()
    producer.close()


def numbered(number: int) -> Any:
    """A small record."""
    from ..clients.records import binary

    return binary(number)


def recovery_lines(log: str) -> str:
    """The log lines about opening the logs."""
    return "\n".join(line for line in log.splitlines() if "odradek.storage.log.opening" in line)
