"""One named region of POSIX shared memory.

Layout    : 64-byte header, then the body.
            0 magic  8 kind (hash of its name)  16 layout version  24 broker incarnation  32 body size  40.. zero
Owner     : the process that created it (the supervisor for the fixed regions).
Writers   : see the module that uses the body.
Lock      : none here; ipc.region_files has the one between a start and what removes leftovers.
Crash rule: a region gets its name when it is whole (O_TMPFILE), so a creator that dies half way leaves nothing. Where
            the file system has no such files, the magic is stored last (ipc.memory_order): what such a creator leaves
            cannot be attached and is replaced.
posix_fallocate reserves the size: on a full /dev/shm an ftruncate alone succeeds and the first access raises SIGBUS.
"""

from __future__ import annotations

import errno
import mmap
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import posix_ipc

from odradek.ipc import memory_order, renewal

SHM = "/dev/shm"
MAGIC = 0x6F64726164656B31  # "odradek1"
LAYOUT = 4
HEADER = 64
_NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR)
_PIECE = 16 << 20  # bytes: the kernel clears them, possibly while this process holds a partition's lock


class RegionError(Exception):
    """A region is missing, or has another layout or broker; the message says what to do."""


class SharedMemoryFull(RegionError, OSError):
    """/dev/shm is full: requests that need more memory are refused, as on a full disk, and may succeed later."""


class Region:
    """A mapped region: `buf` is the body as bytes, `words` the same as native 64-bit integers.

    `map` is the whole region including the header; the body begins at `at` in it.
    """

    at = HEADER

    def __init__(self, name: str, mapping: mmap.mmap) -> None:
        self.name = name
        self.map = mapping
        whole = memoryview(mapping)
        self._header = whole[:HEADER].cast("q")
        self.buf = whole[HEADER:]
        self.words = self.buf.cast("q")

    @property
    def incarnation(self) -> int:
        """The broker run that this region belongs to."""
        return self._header[3]

    @classmethod
    def create(cls, name: str, size: int, kind: str, incarnation: int) -> Region:
        """Make (or replace) region `name` with a zeroed body of `size` bytes (a multiple of 8). SharedMemoryFull."""
        unlink(name)
        with _new_file(name) as fd:
            _reserve(fd, HEADER + size, name)
            region = cls(name, mmap.mmap(fd, HEADER + size))
            region._header[1], region._header[2] = _kind(kind), LAYOUT
            region._header[3], region._header[4] = incarnation, size
            memory_order.ordered()
            region._header[0] = MAGIC
        return region

    @classmethod
    def attach(cls, name: str, kind: str) -> Region:
        """Map an existing region; RegionError when it is missing, unfinished, or has another layout."""
        try:
            memory = posix_ipc.SharedMemory(name)
        except posix_ipc.ExistentialError:
            raise RegionError(f"no shared memory {name}: is the broker running?") from None
        try:
            size = os.fstat(memory.fd).st_size
            if size < HEADER:
                raise RegionError(f"shared memory {name} is incomplete")
            region = cls(name, mmap.mmap(memory.fd, size))
        finally:
            memory.close_fd()
        region._check(kind)
        return region

    def _check(self, kind: str) -> None:
        header = self._header
        if header[0] != MAGIC:
            raise RegionError(f"shared memory {self.name} is incomplete")
        if header[1] != _kind(kind) or header[2] != LAYOUT:
            raise RegionError(
                f"shared memory {self.name} belongs to another version: stop the broker, then start this version"
            )

    def close(self) -> None:
        """Unmap. Callers must have released their views; the region itself stays until `unlink`."""
        self.words.release()
        self.buf.release()
        self._header.release()
        try:
            self.map.close()
        except BufferError:
            pass


@contextmanager
def _new_file(name: str) -> Iterator[int]:
    """The descriptor of a file that gets `name` when the block ends without an error."""
    path = SHM + name
    try:
        fd = os.open(SHM, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise
        with _new_named_file(path) as fd:
            yield fd
        return
    try:
        yield fd
        os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd)  # with a dir_fd Python follows the link to the file
    finally:
        os.close(fd)


@contextmanager
def _new_named_file(path: str) -> Iterator[int]:
    """As `_new_file`, for a kernel without O_TMPFILE: the name is there from the beginning."""
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(fd)


def _kind(kind: str) -> int:
    return zlib.crc32(kind.encode())


def _reserve(fd: int, size: int, name: str) -> None:
    try:
        _allocate(fd, size)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise SharedMemoryFull(
            errno.ENOSPC,
            f"/dev/shm has no room for {size} bytes ({name}): enlarge it (mount -o remount,size=…) or free some",
        ) from None


def _allocate(fd: int, size: int) -> None:
    """Allocate in pieces; refuse a size that cannot fit before it takes memory from others."""
    room = os.fstatvfs(fd)
    if room.f_blocks and size > room.f_bavail * room.f_frsize:  # no blocks: /dev/shm has no limit
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for start in range(0, size, _PIECE):
        os.posix_fallocate(fd, start, min(_PIECE, size - start))
        renewal.renew()


def unlink(name: str) -> bool:
    """Remove the name of a region; the kernel frees its memory when the last process unmaps it."""
    try:
        posix_ipc.unlink_shared_memory(name)
    except posix_ipc.ExistentialError:
        return False
    return True


def unlink_all(prefix: str) -> list[str]:
    """Remove every region whose name begins with `prefix`; returns the names."""
    found = [f"/{entry}" for entry in os.listdir(SHM) if f"/{entry}".startswith(prefix)]
    return [name for name in found if unlink(name)]
