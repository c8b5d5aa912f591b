"""Codecs: round trips, foreign framings, golden frames, zip bombs and broken data."""

from __future__ import annotations

import gzip
import struct
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.errors import MESSAGE_TOO_LARGE, UNKNOWN_SERVER_ERROR, UNSUPPORTED_COMPRESSION_TYPE
from odradek.protocol.records import codecs, lz4_frames, snappy_frames
from odradek.protocol.records.errors import RecordError

PACKING = [codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD]
TEXT = b"Odradek, " * 30000


@given(data=st.binary(max_size=2000), times=st.integers(0, 100), codec=st.integers(0, 4), magic=st.integers(0, 2))
def test_round_trip(data: bytes, times: int, codec: int, magic: int) -> None:
    if codec == codecs.ZSTD:
        magic = 2
    packed = codecs.compress(codec, data * times, magic=magic)
    assert codecs.decompress(codec, memoryview(packed), magic=magic) == data * times


@given(data=st.binary(max_size=2000), times=st.integers(0, 100), codec=st.integers(0, 4), more=st.integers(0, 9))
def test_decompression_into_a_buffer_writes_only_its_front(data: bytes, times: int, codec: int, more: int) -> None:
    """A buffer that is one byte too small is refused."""
    data *= times
    packed = memoryview(codecs.compress(codec, data))
    buffer = bytearray(b"#" * (len(data) + more + 3))
    assert codecs.decompress_into(codec, packed, memoryview(buffer)[3:]) == len(data)
    assert buffer == b"###" + data + b"#" * more
    if data:
        with pytest.raises(RecordError) as caught:
            codecs.decompress_into(codec, packed, memoryview(buffer)[: len(data) - 1])
        assert caught.value.code == MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [*PACKING, 5])
def test_broken_data_is_not_decompressed_into_a_buffer(codec: int) -> None:
    with pytest.raises(RecordError) as caught:
        codecs.decompress_into(codec, b"\x03nothing of the kind", memoryview(bytearray(100)))
    assert caught.value.code == UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("codec", PACKING)
def test_round_trip_at_each_level(codec: int) -> None:
    for level in (1, 9):
        assert codecs.decompress(codec, codecs.compress(codec, TEXT, level)) == TEXT


def test_default_level_of_lz4_uses_the_fast_compressor() -> None:
    """`compression.lz4.level` is 9 by default and then means the fast compressor (KIP-390)."""
    packed = codecs.compress(codecs.LZ4, TEXT)
    assert codecs.compress(codecs.LZ4, TEXT, 9) == packed


def test_zstd_has_negative_levels() -> None:
    assert codecs.decompress(codecs.ZSTD, codecs.compress(codecs.ZSTD, TEXT, -131072)) == TEXT


def test_snappy_frame_written_by_hand_is_read() -> None:
    """Length 11 as a varint, a literal of 6 (tag 5 << 2), a copy of 5 from 6 back (1-byte offset)."""
    block = bytes([11, 5 << 2]) + b"hello " + bytes([(5 - 4) << 2 | 1, 6])
    assert codecs.decompress(codecs.SNAPPY, block) == b"hello hello"
    framed = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block
    assert codecs.decompress(codecs.SNAPPY, framed) == b"hello hello"
    assert codecs.decompress(codecs.SNAPPY, framed + framed) == b"hello hello" * 2
    assert codecs.compress(codecs.SNAPPY, b"hello hello").startswith(framed[:16])


def lz4_frame(flags: int = 0x60, checksum: int = 0x82, blocks: bytes = b"\x0b\0\0\x80hello hello") -> bytes:
    """A frame by hand: block size 64 KiB, one stored block, end mark. 0x82 is xxHash32 of 60 40, second byte."""
    return b"\x04\x22\x4d\x18" + bytes([flags, 0x40, checksum]) + blocks + b"\0\0\0\0"


def test_lz4_frame_written_by_hand_is_read() -> None:
    assert codecs.decompress(codecs.LZ4, lz4_frame()) == b"hello hello"
    with pytest.raises(codecs.BrokenPayload):
        codecs.decompress(codecs.LZ4, lz4_frame(checksum=0x83))
    assert codecs.decompress(codecs.LZ4, lz4_frame(checksum=0x83), magic=0) == b"hello hello"


def test_lz4_of_kafka_08_hashes_the_magic_too() -> None:
    """KAFKA-3160; test_apache compares it with Kafka itself."""
    packed = codecs.compress(codecs.LZ4, TEXT, magic=0)
    assert packed[4] & 0x20, "independent blocks"
    assert packed[6] == lz4_frames.xxh32(packed[:6]) >> 8 & 255
    assert codecs.compress(codecs.LZ4, TEXT)[6] == lz4_frames.xxh32(packed[4:6]) >> 8 & 255
    assert codecs.decompress(codecs.LZ4, packed, magic=0) == TEXT
    with pytest.raises(codecs.BrokenPayload):
        codecs.decompress(codecs.LZ4, packed, magic=1)


@pytest.mark.parametrize(("data", "digest"), [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF)])
def test_xxh32_equals_published_digests(data: bytes, digest: int) -> None:
    assert lz4_frames.xxh32(data) == digest


def test_lz4_with_dependent_blocks_is_refused_as_by_kafka() -> None:
    packer = cramjam.lz4.Compressor(block_linked=True)
    packer.compress(TEXT)
    with pytest.raises(codecs.BrokenPayload, match="dependent"):
        codecs.decompress(codecs.LZ4, bytes(packer.finish()))


def test_lz4_frame_with_content_size_is_read() -> None:
    """cramjam's one-shot compressor writes a content size, and so does librdkafka."""
    packed = bytes(cramjam.lz4.compress(TEXT[:60000]))
    if packed[4] & 0x20:
        assert codecs.decompress(codecs.LZ4, packed) == TEXT[:60000]
    descriptor = bytes([0x68, 0x40]) + struct.pack("<Q", 11)
    checksum = lz4_frames.xxh32(descriptor) >> 8 & 255
    frame = b"\x04\x22\x4d\x18" + descriptor + bytes([checksum]) + b"\x0b\0\0\x80hello hello\0\0\0\0"
    assert codecs.decompress(codecs.LZ4, frame) == b"hello hello"


def test_consecutive_gzip_members_are_read() -> None:
    data = gzip.compress(b"hello ") + gzip.compress(b"hello")
    assert codecs.decompress(codecs.GZIP, data) == b"hello hello"


@given(sizes=st.lists(st.integers(0, 20_000), min_size=1, max_size=8), cut=st.booleans())
def test_gzip_members_of_any_size_are_read_up_to_the_limit(sizes: list[int], cut: bool) -> None:
    data = [bytes(range(256)) * (size // 256 + 1) for size in sizes]
    packed = b"".join(gzip.compress(one[:size], 1) for one, size in zip(data, sizes, strict=True))
    whole = b"".join(one[:size] for one, size in zip(data, sizes, strict=True))
    if cut:
        with pytest.raises(RecordError):
            codecs.decompress(codecs.GZIP, packed[:-1])
        return
    assert codecs.decompress(codecs.GZIP, packed) == whole
    assert codecs.decompress(codecs.GZIP, memoryview(packed), limit=len(whole)) == whole
    if whole:
        with pytest.raises(RecordError) as caught:
            codecs.decompress(codecs.GZIP, packed, limit=len(whole) - 1)
        assert caught.value.code == MESSAGE_TOO_LARGE


def test_many_small_gzip_members_are_not_copied_repeatedly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder copies its unused input. A megabyte of members was once copied fifty thousand times, for seconds."""
    given_ = []
    make = zlib.decompressobj

    def counting(window: int) -> object:
        unpacker = make(window)

        class Counting:
            def decompress(self, data: bytes, most: int) -> bytes:
                given_.append(len(data))
                return unpacker.decompress(data, most)

            def __getattr__(self, name: str) -> object:
                return getattr(unpacker, name)

        return Counting()

    monkeypatch.setattr(zlib, "decompressobj", counting)
    packed = gzip.compress(b"") * 5_000
    assert codecs.decompress(codecs.GZIP, packed) == b""
    assert sum(given_) < 5_000 * 5_000


@pytest.mark.parametrize("codec", PACKING)
def test_decompression_of_zip_bombs_stops_at_the_limit(codec: int) -> None:
    bomb = codecs.compress(codec, bytes(3 << 20))
    assert len(codecs.decompress(codec, bomb, limit=3 << 20)) == 3 << 20
    with pytest.raises(RecordError) as caught:
        codecs.decompress(codec, bomb, limit=(3 << 20) - 1)
    assert caught.value.code == MESSAGE_TOO_LARGE


def test_snappy_block_that_claims_4_gib_is_refused() -> None:
    with pytest.raises(RecordError) as caught:
        codecs.decompress(codecs.SNAPPY, b"\xff\xff\xff\xff\x0f\0")
    assert caught.value.code == MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", PACKING)
@given(cut=st.integers(0, 200), junk=st.binary(max_size=30))
def test_broken_data_is_a_record_error(codec: int, cut: int, junk: bytes) -> None:
    packed = codecs.compress(codec, TEXT)
    for data in (packed[:cut] + junk + packed[cut + len(junk) :], packed[: -1 - cut], junk):
        try:
            codecs.decompress(codec, data, limit=1 << 20)
        except RecordError as error:
            assert error.code in (UNKNOWN_SERVER_ERROR, MESSAGE_TOO_LARGE)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    with pytest.raises(codecs.UnknownCodec):
        codecs.decompress(codec, b"")
    with pytest.raises(codecs.UnknownCodec):
        codecs.compress(codec, b"")


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_refused_in_old_formats(magic: int) -> None:
    with pytest.raises(RecordError) as caught:
        codecs.compress(codecs.ZSTD, b"x", magic=magic)
    assert caught.value.code == UNSUPPORTED_COMPRESSION_TYPE


def test_snappy_writes_blocks_of_32_kib() -> None:
    packed = codecs.compress(codecs.SNAPPY, TEXT)
    (length,) = struct.unpack_from(">i", packed, 16)
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + length]) == snappy_frames.BLOCK
