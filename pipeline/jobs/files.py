"""Files under a URI of any file system that Hadoop supports (hdfs:, s3a:, file:), through the driver's Java."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from odradek.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL)
_NO_SUCH_RENAME = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
_HERE, _NO_REPLACE = -100, 1  # AT_FDCWD, RENAME_NOREPLACE


class Entry(NamedTuple):
    """A file; `path` is relative to the root, with slashes."""

    path: str
    size: int  # bytes
    modified_ms: int


class Files:
    """Files below `root`; every path is relative to it. Raises PipelineError with the URI and the reason.

    The attribute `root` is the full URI, `here` the path where it is on a file system of this machine. `room`, where it
    is set, is a folder for incomplete files: without it no file is created, replaced or removed any more.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()
        with _told(root):
            path = self._jvm.org.apache.hadoop.fs.Path(root)
            self._fs = path.getFileSystem(self._conf)
            self._root = self._fs.makeQualified(path)
        self.root = str(self._root.toString())
        uri = self._root.toUri()
        self.here = Path(uri.getPath()) if uri.getScheme() == "file" else None
        self.room: str | None = None

    def exists(self, path: str) -> bool:
        """Whether the file or folder exists."""
        with _told(self.uri(path)):
            return bool(self._fs.exists(self._path(path)))

    def read(self, path: str) -> str:
        """The text of a file."""
        with _told(self.uri(path)):
            stream = self._fs.open(self._path(path))
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
            finally:
                stream.close()

    def write(self, path: str, text: str) -> None:
        """Create or replace a file; a reader sees the old text or the new."""
        if self.here is not None:
            self._put_here(self.here, path, text, os.replace)
        else:
            self._put(path, text, replace=True)

    def create(self, path: str, text: str) -> bool:
        """Create a file; False where it exists."""
        try:
            if self.here is not None:
                self._put_here(self.here, path, text, make_once)
            elif not self.exists(path):
                self._put(path, text, replace=False)
            else:
                return False
        except FileExistsError:
            return False
        return True

    def list(self, folder: str = "") -> list[Entry]:
        """All files in a folder and its folders, except for names that begin with a dot; none where it is missing."""
        if not self.exists(folder):
            return []
        with _told(self.uri(folder)):
            found = self._fs.listFiles(self._path(folder), True)
            entries = []
            while found.hasNext():
                entries.append(self._entry(found.next()))
        return sorted(entry for entry in entries if not entry.path.rpartition("/")[2].startswith("."))

    def empty(self, folder: str = "") -> bool:
        """Whether a folder is empty, or does not exist; names that begin with a dot do not count."""
        return all(name.startswith(".") for name in self.names(folder))

    def names(self, folder: str = "") -> Sequence[str]:
        """The names in a folder itself, sorted; none where it does not exist."""
        if not self.exists(folder):
            return []
        with _told(self.uri(folder)):
            return sorted(str(each.getPath().getName()) for each in self._fs.listStatus(self._path(folder)))

    def rename(self, old: str, new: str) -> None:
        """Move a file; creates missing folders. Whether it replaces an existing file depends on the file system."""
        self.make(new.rpartition("/")[0])
        if self.here is not None:
            with self._told_here(old):
                os.replace(self.here / old, self.here / new)
        elif not self._renamed(old, new):
            raise PipelineError(f"cannot rename {self.uri(old)} to {self.uri(new)}")

    def rename_new(self, old: str, new: str) -> bool:
        """Move a file to a folder that exists; False where the new name exists. As atomic as `create`."""
        if self.here is None:
            return not self.exists(new) and self._renamed(old, new)
        try:
            with self._told_here(old):
                make_once(self.here / old, self.here / new)
                (self.here / old).unlink(missing_ok=True)
        except FileExistsError:
            return False
        return True

    def _renamed(self, old: str, new: str) -> bool:
        try:
            with _told(self.uri(old)):
                return bool(self._fs.rename(self._path(old), self._path(new)))
        except FileExistsError:
            return False

    def sync(self, paths: Iterable[str]) -> None:
        """Flush these files and their names to disk. On other file systems closing a file does that."""
        if self.here is None:
            return
        files = [self.here / path for path in paths]
        for each in [*files, *{file.parent for file in files}]:
            with self._told_here(str(each)):
                _flush(each)

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""
        with _told(self.uri(path)):
            self._fs.delete(self._path(path), True)

    def delete_empty(self, folder: str) -> None:
        """Remove a folder unless it has content."""
        if not self.names(folder):
            with suppress(PipelineError), _told(self.uri(folder)):
                self._fs.delete(self._path(folder), False)

    def take_away(self, path: str) -> None:
        """Remove a file by way of the room, if it exists. PipelineError where the room is gone."""
        gone = f"{self.room}/{uuid4()}"
        if self.here is not None:
            with self._told_here(path):
                try:
                    os.replace(self.here / path, self.here / gone)
                except FileNotFoundError:
                    if (self.here / path).exists():
                        raise
        elif self.exists(path) and not (self.exists(str(self.room)) and self._renamed(path, gone)):
            raise PipelineError(f"cannot rename {self.uri(path)} to {self.uri(gone)}")
        self.delete(gone)

    def make(self, folder: str = "") -> None:
        """Create a folder and those above it."""
        if self.here is not None:
            with self._told_here(folder):
                _make(self.here / folder)
            return
        with _told(self.uri(folder)):
            if not self._fs.mkdirs(self._path(folder)):
                raise PipelineError(f"cannot create the folder {self.uri(folder)}")

    def check_writable(self) -> None:
        """Create a file and remove it again."""
        name = f".writable-{uuid4()}"
        self.write(name, "")
        self.delete(name)

    def uri(self, path: str) -> str:
        """The full URI of a path."""
        return f"{self.root.rstrip('/')}/{path}" if path else self.root

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path) if path else self._root

    def _entry(self, status: Any) -> Entry:
        path = self._root.toUri().relativize(status.getPath().toUri()).getPath()
        return Entry(str(path), int(status.getLen()), int(status.getModificationTime()))

    def _put(self, path: str, text: str, replace: bool) -> None:
        """Write as Spark writes checkpoints: a hidden file, then a rename."""
        self.make(path.rpartition("/")[0])
        with _told(self.uri(path)):
            managers = _managers(self._jvm)
            manager = managers.create(self._root, self._conf)
            renaming = f"{managers._fqn}$RenameHelperMethods"
            if self.room is not None and self._jvm.py4j.reflection.TypeUtil.isInstanceOf(renaming, manager):
                self._put_through(self.room, manager, path, text, replace)
                return
            stream = manager.createAtomic(self._path(path), replace)
            try:
                stream.write(text.encode())
                stream.close()
            except BaseException:
                stream.cancel()
                raise

    def _put_through(self, room: str, manager: Any, path: str, text: str, replace: bool) -> None:
        """The same with the hidden file in a folder that is not created for it."""
        hidden = self._path(f"{room}/.{uuid4()}.tmp")
        copies, block = self._fs.getDefaultReplication(hidden), self._fs.getDefaultBlockSize(hidden)
        stream = self._fs.createNonRecursive(hidden, True, 4096, copies, block, None)
        try:
            stream.write(text.encode())
            stream.close()
            manager.renameTempFile(hidden, self._path(path), replace)
        finally:
            self._fs.delete(hidden, False)

    def _put_here(self, here: Path, path: str, text: str, place: Callable[[Path, Path], object]) -> None:
        """Like `_put`, where Hadoop would write a checksum next to it in a second step, and check before it creates."""
        target = here / path
        folder = target.parent if self.room is None else here / self.room
        hidden = folder / f".{target.name}.{uuid4()}.tmp"
        try:
            with self._told_here(str(target)):
                _make(target.parent)
                _write_through(hidden, text)
                place(hidden, target)
                _flush(target.parent)
        finally:
            with suppress(OSError):
                hidden.unlink()

    @contextmanager
    def _told_here(self, path: str) -> Iterator[None]:
        """Turn Python's errors into ours, except for that of an existing file."""
        try:
            yield
        except OSError as error:
            if isinstance(error, FileExistsError) and error.filename2:
                raise
            raise PipelineError(f"{self.root}: cannot write {path}: {error.strerror}") from None


def make_once(hidden: Path, target: Path) -> None:
    """Give a complete file a new name. FileExistsError where the name exists.

    By a link, or where the file system has none (CIFS, vfat, many of FUSE) by a rename that replaces nothing. One with
    neither is treated like an object store: check whether the name exists; other processes must not write there.
    """
    try:
        os.link(hidden, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        rename_new(hidden, target)


def rename_new(hidden: Path, target: Path) -> None:
    """Like `make_once`, without a link."""
    number = _renamed_new(hidden, target)
    if number in _NO_SUCH_RENAME and target.exists():
        number = errno.EEXIST
    elif number in _NO_SUCH_RENAME:
        hidden.replace(target)
        number = 0
    if number:
        raise OSError(number, os.strerror(number), str(hidden), None, str(target))


def _renamed_new(hidden: Path, target: Path) -> int:
    """Returns the errno, 0 for none."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return errno.ENOSYS
    return ctypes.get_errno() if rename(_HERE, bytes(hidden), _HERE, bytes(target), _NO_REPLACE) else 0


def _make(folder: Path) -> None:
    """Create a folder and those above it, and flush the names of new ones to disk."""
    try:
        folder.mkdir()
    except FileExistsError:
        return
    except FileNotFoundError:
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
    _flush(folder.parent)


def _write_through(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _flush(path: Path) -> None:
    """Flush a file's content, or a folder's names, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _managers(jvm: Any) -> Any:
    """Spark's CheckpointFileManager, which moved to another package in Spark 4.1."""
    from py4j.java_gateway import JavaClass

    streaming = jvm.org.apache.spark.sql.execution.streaming
    found = streaming.checkpointing.CheckpointFileManager
    return found if isinstance(found, JavaClass) else streaming.CheckpointFileManager


@contextmanager
def _told(uri: str) -> Iterator[None]:
    """Turn Java's exceptions into ours: the URI and the message, without the stack."""
    try:
        yield
    except Exception as error:
        java: Any = getattr(error, "java_exception", None)
        text = str(java.toString()) if java is not None else str(error)  # pyspark translates some
        if "FileAlreadyExistsException" in text:
            raise FileExistsError(uri) from None
        if java is None and not type(error).__module__.startswith("pyspark."):
            raise
        raise PipelineError(f"{uri}: {_said(text)}") from None


def _said(text: str) -> str:
    """The first line of an exception, without its class."""
    line = (text.splitlines() or [""])[0]
    name, _, said = line.partition(": ")
    return said if said and " " not in name else line
