"""Reads metadata logs in any state: snapshots, torn ends, damage, gaps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.storage.files import names
from odradek.storage.tools import metadata_log
from odradek.storage.tools.metadata_log import MetadataLogError

from ...cluster import kraft


def values(directory: Path) -> list[bytes | None]:
    return [value for batch in metadata_log.read(directory) for value in batch.values]


def numbered(low: int, high: int, epoch: int = 1) -> list[bytes]:
    """A batch for each offset; the value is the offset."""
    return [kraft.batch(offset, [b"%d" % offset], epoch) for offset in range(low, high)]


def upto(low: int, high: int) -> list[bytes]:
    return [b"%d" % offset for offset in range(low, high)]


def test_a_log_without_a_snapshot(tmp_path: Path) -> None:
    kraft.segment(tmp_path, 0, [kraft.leader_change(0, [1, 2, 3]), *numbered(1, 4)])
    kraft.segment(tmp_path, 4, numbered(4, 6))
    assert values(tmp_path) == upto(1, 6)
    assert [batch.control[0][0] for batch in metadata_log.read(tmp_path) if batch.control] == [2]


def test_the_newest_whole_snapshot_and_what_follows(tmp_path: Path) -> None:
    kraft.segment(tmp_path, 0, numbered(0, 4))
    kraft.segment(tmp_path, 4, numbered(4, 9))
    kraft.snapshot(tmp_path, 3, [b"old"])
    newest = kraft.snapshot(tmp_path, 6, [b"all up to 5"])
    (tmp_path / f"{8:020d}-{1:010d}.checkpoint.part").write_bytes(b"unfinished")
    (tmp_path / f"{8:020d}-{1:010d}.checkpoint.deleted").write_bytes(b"deleted")
    assert values(tmp_path) == [b"all up to 5", *upto(6, 9)]
    newest.write_bytes(newest.read_bytes()[:-20])
    assert values(tmp_path) == [b"old", *upto(3, 9)]
    newest.write_bytes(newest.read_bytes()[:-60])
    assert values(tmp_path) == [b"old", *upto(3, 9)]


def test_log_behind_its_snapshot_is_ignored(tmp_path: Path) -> None:
    kraft.segment(tmp_path, 0, numbered(0, 4))
    kraft.snapshot(tmp_path, 10, [b"downloaded"])
    assert values(tmp_path) == [b"downloaded"]


def test_log_of_an_older_epoch_than_the_snapshot_is_ignored(tmp_path: Path) -> None:
    kraft.segment(tmp_path, 0, numbered(0, 9))
    kraft.snapshot(tmp_path, 5, [b"downloaded"], epoch=2)
    assert values(tmp_path) == [b"downloaded"]


@pytest.mark.parametrize("tail", [b"\0" * 100, b"rest of a batch", kraft.batch(3, [b"3"])[:-1]])
def test_a_torn_end_makes_it_unreadable(tmp_path: Path, tail: bytes) -> None:
    """The lost end may have held a config by which records are kept."""
    kraft.segment(tmp_path, 0, [*numbered(0, 3), tail])
    kraft.snapshot(tmp_path, 1, [b"old"])
    with pytest.raises(MetadataLogError, match="damaged at byte"):
        values(tmp_path)


def test_a_snapshot_without_its_log_is_unreadable(tmp_path: Path) -> None:
    kraft.snapshot(tmp_path, 5, [b"old"])
    with pytest.raises(MetadataLogError, match="there is no segment"):
        values(tmp_path)
    kraft.segment(tmp_path, 5, [])  # as Kafka begins after a snapshot was downloaded
    assert values(tmp_path) == [b"old"]


@pytest.mark.parametrize("snapshot", [None, 2])
def test_log_end_known_from_a_producer_snapshot_is_missing(tmp_path: Path, snapshot: int | None) -> None:
    """A clean stop of Kafka writes the state of producers at the end of the log."""
    kraft.segment(tmp_path, 0, numbered(0, 4))
    if snapshot:
        kraft.snapshot(tmp_path, snapshot, [b"0", b"1"])
    for end in (1, 4):
        names.segment_path(tmp_path, end, names.SNAPSHOT).touch()
    assert values(tmp_path) == upto(0, 4)
    names.segment_path(tmp_path, 6, names.SNAPSHOT).touch()
    with pytest.raises(MetadataLogError, match="records 4 to 5 are missing"):
        values(tmp_path)


def damaged(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


@pytest.mark.parametrize("segments", [[0], [0, 2]])
def test_damage_before_the_end_makes_it_unreadable(tmp_path: Path, segments: list[int]) -> None:
    whole = numbered(0, 4)
    whole[1] = damaged(whole[1])
    for base, end in zip(segments, [*segments[1:], 4], strict=True):
        kraft.segment(tmp_path, base, whole[base:end])
    with pytest.raises(MetadataLogError, match="damaged at byte"):
        values(tmp_path)


@pytest.mark.parametrize(("snapshot", "first"), [(None, 2), (3, 5)])
def test_missing_records_make_it_unreadable(tmp_path: Path, snapshot: int | None, first: int) -> None:
    kraft.segment(tmp_path, first, numbered(first, 9))
    if snapshot:
        kraft.snapshot(tmp_path, snapshot, [])
    with pytest.raises(MetadataLogError, match=r"missing|neither"):
        values(tmp_path)


def test_a_gap_makes_it_unreadable(tmp_path: Path) -> None:
    kraft.segment(tmp_path, 0, [*numbered(0, 2), *numbered(4, 6)])
    with pytest.raises(MetadataLogError, match="records 2 to 3 are missing"):
        values(tmp_path)


def test_voters_by_the_quorum_state(tmp_path: Path) -> None:
    assert metadata_log.voters(tmp_path) is None
    for state, count in (({"currentVoters": [{"voterId": 1}, {"voterId": 2}]}, 2), ({"leaderId": 1}, None), ([], None)):
        (tmp_path / "quorum-state").write_text(json.dumps(state))
        assert metadata_log.voters(tmp_path) == count
    (tmp_path / "quorum-state").write_bytes(b"\xff{")
    assert metadata_log.voters(tmp_path) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.data())
def test_any_damage_but_a_cut_between_batches_is_unreadable(tmp_path: Path, data: st.DataObject) -> None:
    whole = b"".join(numbered(0, 6))
    at = data.draw(st.integers(0, len(whole) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "insert"]))
    odd = data.draw(st.binary(min_size=1, max_size=40))
    if kind == "flip":
        broken = whole[:at] + bytes([whole[at] ^ odd[0]]) + whole[at + 1 :]
    else:
        broken = whole[:at] + (odd + whole[at:] if kind == "insert" else b"")
    kraft.segment(tmp_path, 0, [broken])
    try:
        found = values(tmp_path)
    except MetadataLogError:
        return
    size = len(whole) // 6
    assert found == upto(0, len(broken) // size)
    assert len(broken) % size == 0, "batches that are cut off whole leave nothing"
    assert kind == "cut" or broken == whole or at % size in range(12, 16), (
        "only the leader epoch is outside of the checksum"
    )


@given(body=st.binary(max_size=60), count=st.integers(0, 5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_odd_records_with_a_right_checksum(tmp_path: Path, body: bytes, count: int) -> None:
    from odradek.protocol.batch import CONTROL
    from odradek.protocol.records.batch_v2 import RecordsSpan, assemble

    for attributes in (0, CONTROL, 1, 2, 3, 4, 5):
        kraft.segment(tmp_path, 0, [assemble(body, RecordsSpan(0, max(count - 1, 0), 0, 0, count), attributes)])
        try:
            values(tmp_path)
        except MetadataLogError:
            pass
