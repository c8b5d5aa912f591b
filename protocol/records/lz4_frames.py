"""LZ4 frames, correct ones and those of Kafka before 0.10 with a wrong header checksum (KAFKA-3160).

Frame (lz4_Frame_format.md 1.6): magic 04 22 4d 18, FLG, BD, [content size 8 bytes], HC, blocks, end mark.
HC is the second byte of xxHash32 over FLG..content size; the old clients included the magic, and check it that
way. So message sets of magic 0 are written with the wrong checksum and read without checking HC. Kafka refuses
frames with dependent blocks, so ours are independent, of 64 KiB, without content checksum, as Java's.
"""

from functools import lru_cache

MAGIC = b"\x04\x22\x4d\x18"
_INDEPENDENT, _CONTENT_SIZE = 0x20, 0x08
_MASK = 0xFFFFFFFF
_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393


# Kafka's default, 9, means its fast compressor, not level 9 of the high one (KIP-390); cramjam's fast one is 0.
_FAST, _KAFKA_DEFAULT = 0, 9


def compress(data: bytes, level: int | None = None, broken: bool = False) -> bytes:
    """`data` as one frame; `broken` writes the header checksum that Kafka 0.8 and 0.9 expect."""
    import cramjam

    own = _FAST if level in (None, _KAFKA_DEFAULT) else level
    packer = cramjam.lz4.Compressor(level=own, content_checksum=False, block_linked=False)
    packer.compress(data)
    frame = bytes(packer.finish())
    if not broken:
        return frame
    end = _header_end(frame)
    return frame[:end] + bytes((_checksum(frame[:end]),)) + frame[end + 1 :]


def mended(data: bytes | memoryview, trust_checksum: bool) -> bytes | memoryview:
    """`data` with the header checksum corrected if it may be wrong; ValueError when Kafka refuses the frame."""
    end = _header_end(data)
    right = _checksum(bytes(data[len(MAGIC) : end]))
    if data[end] == right:
        return data
    if trust_checksum:
        raise ValueError("the lz4 frame descriptor is corrupt")
    return b"".join((data[:end], bytes((right,)), data[end + 1 :]))


def _header_end(data: bytes | memoryview) -> int:
    """The position of HC."""
    if len(data) < 7 or data[:4] != MAGIC:
        raise ValueError("not an lz4 frame")
    flags = data[4]
    if flags >> 6 != 1 or not flags & _INDEPENDENT:
        raise ValueError("an lz4 frame of another version or with dependent blocks")
    end = 14 if flags & _CONTENT_SIZE else 6
    if len(data) <= end:
        raise ValueError("the lz4 header is cut short")
    return end


@lru_cache(256)  # a producer's frames all have the same descriptor, or one of few
def _checksum(descriptor: bytes) -> int:
    """HC of `descriptor`."""
    return xxh32(descriptor) >> 8 & 255


def xxh32(data: bytes) -> int:
    """xxHash32 with seed 0 of fewer than 16 bytes: frame descriptors are never longer, so no stripes here.

    The maximum is 14 bytes: magic, FLG, BD and content size.
    """
    value = _P5 + len(data)
    for position in range(0, len(data) - 3, 4):
        value += int.from_bytes(data[position : position + 4], "little") * _P3
        value = _rotate(value & _MASK, 17) * _P4 & _MASK
    for byte in data[len(data) & ~3 :]:
        value = _rotate((value + byte * _P5) & _MASK, 11) * _P1 & _MASK
    value = (value ^ value >> 15) * _P2 & _MASK
    value = (value ^ value >> 13) * _P3 & _MASK
    return value ^ value >> 16


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
