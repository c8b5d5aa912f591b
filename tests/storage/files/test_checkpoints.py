import errno
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.files import checkpoints
from odradek.storage.files.checkpoints import CheckpointError, MetaProperties
from tests.storage.faulty import FaultyFiles


def test_offset_checkpoint_is_kafkas_text(tmp_path: Path) -> None:
    offsets = {("a", 0): 12, ("b.c-d", 3): 9_000_000_000}
    checkpoints.write_offsets(tmp_path, checkpoints.RECOVERY_POINT, offsets)
    text = (tmp_path / "recovery-point-offset-checkpoint").read_text()
    assert text == "0\n2\na 0 12\nb.c-d 3 9000000000\n"
    assert checkpoints.read_offsets(tmp_path, checkpoints.RECOVERY_POINT) == offsets


@pytest.mark.parametrize("text", [None, "", "0\n", "0\n0\n"])
def test_nothing_known_is_no_offsets(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / checkpoints.LOG_START).write_text(text)
    assert checkpoints.read_offsets(tmp_path, checkpoints.LOG_START) == {}


@pytest.mark.parametrize(
    "content",
    [
        b"1\n0\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 x\n",
        b"x\n0\n",
        b"0\n1\na 0 1\nb 0 2\n",
        b"0\n\xff\xff\n",
        b"0\n1\na 0 9223372036854775808\n",
    ],
)
def test_malformed_checkpoint_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / checkpoints.CLEANER).write_bytes(content)
    with pytest.raises(CheckpointError, match=checkpoints.CLEANER):
        checkpoints.read_offsets(tmp_path, checkpoints.CLEANER)


def test_threads_that_share_a_checkpoint_read_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One reads the file before it is replaced, another after that; the first ends while the other still reads."""
    key, read, got = ("t", 0), checkpoints.read_offsets, threading.Event()
    checkpoints.write_offsets(tmp_path, checkpoints.CLEANER, {key: 1})
    go = threading.Event()

    def slow(*arguments: Any) -> checkpoints.Offsets:
        found = read(*arguments)
        if threading.current_thread() is late:
            got.set()
            go.wait(10)
        return found

    class Interrupted(checkpoints.OffsetFile):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if threading.current_thread() is not late and got.is_set() and not go.is_set():
                go.set()
                late.join()

    late = threading.Thread(target=lambda: shared.read())
    monkeypatch.setattr(checkpoints, "read_offsets", slow)
    shared = Interrupted(tmp_path, checkpoints.CLEANER)
    late.start()
    assert got.wait(10)
    checkpoints.write_offsets(tmp_path, checkpoints.CLEANER, {key: 20})
    assert shared.read() == {key: 20}
    assert shared.read() == {key: 20}


def test_clean_shutdown_mark_counts_once(tmp_path: Path) -> None:
    assert not checkpoints.consume_clean_shutdown(tmp_path)
    checkpoints.mark_clean_shutdown(tmp_path)
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":-1}'
    assert checkpoints.consume_clean_shutdown(tmp_path)
    assert not checkpoints.consume_clean_shutdown(tmp_path)


def test_clean_shutdown_mark_is_removed_on_disk_before_it_counts(tmp_path: Path) -> None:
    checkpoints.mark_clean_shutdown(tmp_path)
    files = FaultyFiles()
    files.fail_next_sync = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        checkpoints.consume_clean_shutdown(tmp_path, files=files)


@given(st.binary(min_size=16, max_size=16))
def test_topic_ids_round_trip(value: bytes) -> None:
    text = checkpoints.format_uuid(value)
    assert len(text) == 22
    assert checkpoints.parse_uuid(text) == value


def test_a_topic_id_as_kafka_writes_it(tmp_path: Path) -> None:
    # java: new Uuid(0x0123456789abcdefL, 0xfedcba9876543210L).toString()
    value = bytes.fromhex("0123456789abcdeffedcba9876543210")
    assert checkpoints.format_uuid(value) == "ASNFZ4mrze_-3LqYdlQyEA"
    checkpoints.write_partition_metadata(tmp_path, value)
    assert (tmp_path / "partition.metadata").read_text() == "version: 0\ntopic_id: ASNFZ4mrze_-3LqYdlQyEA"
    assert checkpoints.read_partition_metadata(tmp_path) == value


@pytest.mark.parametrize(
    "text", ["version: 1\ntopic_id: ASNFZ4mrze_-3LqYdlQyEA", "version: 0", "version: 0\ntopic_id: abc"]
)
def test_broken_partition_metadata(tmp_path: Path, text: str) -> None:
    (tmp_path / "partition.metadata").write_text(text)
    with pytest.raises(CheckpointError):
        checkpoints.read_partition_metadata(tmp_path)


def test_binary_files_are_an_error(tmp_path: Path) -> None:
    for name, read in (
        ("partition.metadata", checkpoints.read_partition_metadata),
        ("meta.properties", checkpoints.read_meta_properties),
    ):
        (tmp_path / name).write_bytes(b"version: \xff\xfe")
        with pytest.raises(CheckpointError, match=name):
            read(tmp_path)


def test_meta_properties(tmp_path: Path) -> None:
    assert checkpoints.read_meta_properties(tmp_path) is None
    meta = MetaProperties("cl-uster", 7, "dir")
    checkpoints.write_meta_properties(tmp_path, meta)
    assert checkpoints.read_meta_properties(tmp_path) == meta
    assert "broker.id=7" in (tmp_path / "meta.properties").read_text().splitlines()


def test_meta_properties_of_a_kraft_broker(tmp_path: Path) -> None:
    text = "#\n#Fri Nov 21\ncluster.id=5L6g3nShT-eMCtK--X86sw\nversion=1\ndirectory.id=zKzQ7XOxQ0qv\nnode.id=0\n"
    (tmp_path / "meta.properties").write_text(text)
    expected = MetaProperties("5L6g3nShT-eMCtK--X86sw", 0, "zKzQ7XOxQ0qv", 1)
    assert checkpoints.read_meta_properties(tmp_path) == expected
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=x\ncluster.id=a\n")
    with pytest.raises(CheckpointError):
        checkpoints.read_meta_properties(tmp_path)
