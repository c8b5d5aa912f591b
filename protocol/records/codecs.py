"""The codecs of record batches, each with a bound on its output.

Codec numbers are the low three bits of the attributes of a batch or message. Producers choose the compressed
bytes, so every decoder stops at `limit` bytes of output instead of trusting a header: 4 kB of zstd can claim
gigabytes. Framings: gzip RFC 1952, `snappy_frames`, `lz4_frames`, zstd RFC 8878 (KIP-110).

cramjam, 1.5 MB in a process, is loaded with the first data that need it.
"""

import zlib
from collections.abc import Callable

from odradek.protocol.errors import MESSAGE_TOO_LARGE, UNKNOWN_SERVER_ERROR, UNSUPPORTED_COMPRESSION_TYPE
from odradek.protocol.records import lz4_frames, snappy_frames
from odradek.protocol.records.errors import RecordError

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
BY_NAME = {name: codec for codec, name in NAMES.items()} | {"uncompressed": NONE}

# Far above any batch of a sane client (1 MiB compressed by default), far below a size that would harm the machine.
DEFAULT_LIMIT = 128 << 20
# The most that a worker unpacks while its other connections wait. A batch that large (or with that many records) is
# stored anyway when no check needs its contents.
WORKER_LIMIT = 32 << 20
WORKER_RECORDS = 1 << 17
_GZIP_STEP = 1 << 12
_GZIP_WINDOW = 16 + zlib.MAX_WBITS

DecompressInto = Callable[[bytes | memoryview, bytearray], int]


class TooLong(Exception):
    """The output exceeds the limit."""


class UnknownCodec(RecordError):
    """An undefined codec number (5 to 7). Apache Kafka answers UNKNOWN_SERVER_ERROR."""

    def __init__(self, codec: int) -> None:
        super().__init__(UNKNOWN_SERVER_ERROR, f"Unknown compression codec {codec}")


class BrokenPayload(RecordError):
    """Compressed bytes that do not unpack although their CRC is right: the producer's fault.

    UNKNOWN_SERVER_ERROR as from Apache Kafka, and for its effect: clients would retry CORRUPT_MESSAGE for ever.
    """

    def __init__(self, codec: int, why: object) -> None:
        super().__init__(UNKNOWN_SERVER_ERROR, f"Cannot unpack {NAMES[codec]} data: {why}")


def _gunzip(data: bytes | memoryview, limit: int, magic: int) -> bytes:
    """Unpack all consecutive members, as Java's GZIPInputStream does."""
    out: list[bytes] = []
    at, step = 0, len(data)
    while at < len(data) or not out:
        piece, at = _member(memoryview(data), at, step, limit)
        limit -= len(piece)
        out.append(piece)
        step = _GZIP_STEP
    return b"".join(out)


def _member(data: memoryview, at: int, step: int, limit: int) -> tuple[bytes, int]:
    """The gzip member at `at`, and the position after it.

    The decoder copies unused input, so it gets little where a small member may come: `step` bytes first.
    """
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    out: list[bytes] = []
    while not unpacker.eof:
        chunk = data[at : at + step]
        if not chunk:
            raise ValueError("the gzip stream ends early")
        out.append(unpacker.decompress(chunk, limit + 1))
        limit -= len(out[-1])
        if limit < 0:
            raise TooLong
        at, step = at + len(chunk) - len(unpacker.unused_data), step * 2
    return b"".join(out), at


def _gzip(data: bytes, level: int | None, magic: int) -> bytes:
    packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
    return packer.compress(data) + packer.flush()


def _unzstd(data: bytes | memoryview, limit: int, magic: int) -> bytes:
    import cramjam

    return into_buffer(cramjam.zstd.decompress_into, data, limit)


def _zstd(data: bytes, level: int | None, magic: int) -> bytes:
    import cramjam

    return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))


def into_buffer(decompress_into: DecompressInto, data: bytes | memoryview, limit: int) -> bytes:
    """Unpack with a cramjam `decompress_into`, which cannot write past its buffer; grow it up to `limit`.

    The streaming decoders of cramjam append to a buffer of their own without bound, hence the retry: at
    worst it unpacks the data twice. TooLong when even `limit` bytes are too few.
    """
    import cramjam

    size = min(limit, max(65536, 8 * len(data)))
    while True:
        buffer = bytearray(size)
        try:
            return bytes(memoryview(buffer)[: decompress_into(data, buffer)])
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise
        if size >= limit:
            raise TooLong
        size = min(limit, size * 8)


def _unlz4(data: bytes | memoryview, limit: int, magic: int) -> bytes:
    import cramjam

    frame = lz4_frames.mended(data, trust_checksum=magic > 0)
    return into_buffer(cramjam.lz4.decompress_into, frame, limit)


def _lz4(data: bytes, level: int | None, magic: int) -> bytes:
    return lz4_frames.compress(data, level, broken=magic == 0)


def _unsnappy(data: bytes | memoryview, limit: int, magic: int) -> bytes:
    out = snappy_frames.decompress(data, limit)
    if out is None:
        raise TooLong
    return out


def _snappy(data: bytes, level: int | None, magic: int) -> bytes:
    return snappy_frames.compress(data)


_DECODERS: dict[int, Callable[[bytes | memoryview, int, int], bytes]] = {
    GZIP: _gunzip,
    SNAPPY: _unsnappy,
    LZ4: _unlz4,
    ZSTD: _unzstd,
}
_ENCODERS: dict[int, Callable[[bytes, int | None, int], bytes]] = {
    GZIP: _gzip,
    SNAPPY: _snappy,
    LZ4: _lz4,
    ZSTD: _zstd,
}


def _broken() -> tuple[type[Exception], ...]:
    """What a decoder raises for data that it cannot unpack."""
    import cramjam

    return cramjam.DecompressionError, zlib.error, ValueError


def decompress(codec: int, data: bytes | memoryview, limit: int = DEFAULT_LIMIT, magic: int = 2) -> bytes:
    """`data` unpacked, at most `limit` bytes. `magic` 0 accepts a wrong lz4 header checksum (KAFKA-3160).

    UnknownCodec for 5 to 7, BrokenPayload when it does not unpack, RecordError MESSAGE_TOO_LARGE past `limit`.
    """
    if codec == NONE:
        return bytes(data)
    decoder = _DECODERS.get(codec)
    if decoder is None:
        raise UnknownCodec(codec)
    try:
        return decoder(data, limit, magic)
    except TooLong:
        raise _too_long(codec, limit) from None
    except _broken() as error:
        raise BrokenPayload(codec, error) from None


def decompress_into(codec: int, data: bytes | memoryview, room: memoryview) -> int:
    """Unpack `data`, of magic 2, to the front of `room`; returns the number of bytes. Never writes elsewhere.

    Errors as `decompress`, with the size of `room` as the limit; the contents of `room` are undefined then.
    """
    import cramjam

    try:
        if codec == ZSTD:
            return cramjam.zstd.decompress_into(data, room)
        if codec == LZ4:
            return cramjam.lz4.decompress_into(lz4_frames.mended(data, trust_checksum=True), room)
    except (cramjam.DecompressionError, ValueError) as error:
        if "whole buffer" in str(error):
            raise _too_long(codec, len(room)) from None
        raise BrokenPayload(codec, error) from None
    unpacked = decompress(codec, data, len(room))
    if len(unpacked) > len(room):  # only for codec NONE
        raise _too_long(codec, len(room))
    room[: len(unpacked)] = unpacked
    return len(unpacked)


def _too_long(codec: int, limit: int) -> RecordError:
    return RecordError(MESSAGE_TOO_LARGE, f"Unpacks to more than {limit} bytes of {NAMES[codec]}")


def compress(codec: int, data: bytes, level: int | None = None, magic: int = 2) -> bytes:
    """`data` packed; `level` as in `compression.<codec>.level` (None: the codec's own default; KIP-390).

    `magic` 0 writes lz4 as Kafka 0.8 did. zstd exists only from magic 2 on: UNSUPPORTED_COMPRESSION_TYPE.
    """
    if codec == NONE:
        return bytes(data)
    encoder = _ENCODERS.get(codec)
    if encoder is None:
        raise UnknownCodec(codec)
    if codec == ZSTD and magic < 2:
        raise RecordError(UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs message format 2, not {magic}")
    return encoder(data, level, magic)
