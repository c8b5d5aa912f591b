"""`odradek dump-log`: the lines, and the same lines as Apache Kafka's tool from the same files."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.broker.commands.dump_log import command
from odradek.protocol.batch import HEADER_SIZE
from odradek.protocol.records import batch_v2, message_sets
from odradek.protocol.records.batch_v2 import Record
from odradek.storage.files import names
from odradek.storage.recovery.recovery import recover
from tests.harness import java
from tests.storage.logs import Interval, batch, marker, message, run_of_batches, write_segment
from tests.storage.written import write_snapshot

TOOL = "kafka.tools.DumpLogSegments"
KINDS = (names.LOG, names.INDEX, names.TIME_INDEX, names.TXN_INDEX, names.SNAPSHOT)


def run(*words: str) -> Result:
    return CliRunner().invoke(command, list(words), catch_exceptions=False)


def kafka(*words: str) -> list[str]:
    lines = java.run("3.9.1", TOOL, *words).stdout.decode().splitlines()
    return [line for line in lines if not line.startswith("log4j:")]


def records(first: int, count: int) -> list[Record]:
    return [
        (
            first + i,
            1000 + i,
            b"k%d" % i if i % 2 else None,
            None if i % 5 == 4 else "wört".encode() * i,
            ((b"h", b"1"),),
        )
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A segment with every kind of thing in it: all codecs, transactions, headers, nulls, three magics."""
    directory = tmp_path_factory.mktemp("dump") / "all-0"
    log = [batch(0, 3, timestamp=900, key=b"k")]
    for codec in range(5):
        log.append(batch_v2.build(records(10 * codec + 3, 10), codec=codec, timestamp_type=codec % 2))
    log += [batch(53 + i, producer=(9, 1, 2**31 - 3 + i if i < 3 else i - 3), attributes=0x10) for i in range(6)]
    log += [marker(59, 9, 1, commit=False), batch(60, producer=(8, 0, 0)), message(61, 0), message(62, 1)]
    log.append(message_sets.build(records(63, 4), magic=1, codec=1))
    write_segment(directory, 0, [*log, *run_of_batches(67, 300)])
    found = recover(directory, Interval())
    write_snapshot(directory, found.leo, found.producers)
    return directory


def files(directory: Path) -> str:
    return ",".join(str(path) for path in sorted(directory.iterdir()) if path.suffix in KINDS)


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--deep-iteration"],
        ["--print-data-log"],
        ["--print-data-log", "--skip-record-metadata"],
        ["--index-sanity-check"],
        ["--verify-index-only"],
        ["--max-bytes", "2000", "--deep-iteration"],
    ],
    ids=" ".join,
)
def test_the_lines_are_those_of_kafkas_own_tool(directory: Path, options: list[str]) -> None:
    expected = kafka("--files", files(directory), *options)
    done = run("--files", files(directory), *options)
    assert done.stdout.splitlines() == expected
    assert done.exit_code == 0
    assert done.stderr == ""


def segment(directory: Path, kind: str) -> Path:
    return names.segment_path(directory, 0, kind)


def test_a_torn_tail_and_a_wrong_checksum_are_shown(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, [batch(0), batch(1)])
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content + b"torn")
    done = run("--files", str(path))
    assert "isvalid: false" in done.stdout
    assert "Found 4 invalid bytes at the end of 00000000000000000000.log" in done.stdout


def test_inconsistencies_go_to_standard_error(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, [batch(0), batch(5), *run_of_batches(6, 100)])
    for kind, entry in ((names.INDEX, b"\0\0\0\x63\0\0\0\x76"), (names.TIME_INDEX, b"\0\0\0\0\0\0\0\x05\0\0\0\x06")):
        segment(tmp_path, kind).write_bytes(entry)
    done = run("--deep-iteration", "--files", files(tmp_path))
    assert done.exit_code == 1
    assert "  0 is followed by 5" in done.stderr
    assert "  Index offset: 99, log offset: 5" in done.stderr
    assert "  Index timestamp: 5, log timestamp: 1006" in done.stderr


def test_an_index_that_a_broker_would_rebuild(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, run_of_batches(0, 100))
    segment(tmp_path, names.INDEX).write_bytes(b"odd")
    done = run("--index-sanity-check", "--files", str(segment(tmp_path, names.INDEX)))
    assert done.exit_code == 1
    assert "Corrupt index found" in done.stderr


def test_undecodable_records_do_not_end_the_dump(tmp_path: Path) -> None:
    raw = bytearray(batch(0, 3))
    raw[HEADER_SIZE] = 100
    batch_v2.set_crc(raw)
    path = write_segment(tmp_path, 0, [bytes(raw), batch(3)])
    done = run("--print-data-log", "--files", str(path))
    assert "Unreadable records" in done.stderr
    assert "| offset: 3 " in done.stdout


def test_a_file_that_is_missing_or_unknown(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    done = run("--files", f"{tmp_path}/00000000000000000000.log,{tmp_path}/meta.properties")
    assert done.exit_code == 1
    assert "Cannot read" in done.stderr
    assert "Ignoring unknown file" in done.stderr


def test_a_decoder_class_that_is_not_kafkas(tmp_path: Path) -> None:
    done = run("--files", "x.log", "--value-decoder-class", "com.example.Avro")
    assert done.exit_code == 2
    assert "Java classes cannot be loaded" in done.output
